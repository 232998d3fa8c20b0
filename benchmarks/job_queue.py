"""What the queue costs: claims, commits, and how both stand to the backlog, to the connections, and to the engines' work.

Everything runs on a durable embedded server of its own, in one run of this script. Figures hold for one machine; ratios travel.

    python benchmarks/job_queue.py [--most JOBS]      default: backlogs up to a million jobs
"""

import argparse
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, event, text

from scribe_pipeline.config import Settings
from scribe_pipeline.database import EmbeddedServer, connect, database_url, migrated_database, upgrade
from scribe_pipeline.engines import EnginePool, LineShape, LineText
from scribe_pipeline.ingest import SegmentationSource, ValidationSource, collect, request_batch
from scribe_pipeline.jobs import JobClaim, TranscriptionSource, claim_jobs, complete_job, drain
from scribe_pipeline.metrics import Line, read_ground_truth
from scribe_pipeline.pages import Image, load_head, load_image, read_lines
from tests.houses import House

SAMPLE = Path(__file__).parents[1] / "samples" / "letter.jpg"
SHARED = Path(__file__).parents[2] / "shared" / "pages"
LINES_OF_A_PAGE = 52
BACKLOGS, WORKSPACES = (1_000, 100_000, 1_000_000), (1, 100)
SMALL_PAGES, COMMITS, CLAIMS, CONNECTIONS = 200, 120, 300, 4
MANY_LINES = "Zwei Zeilen eines Briefes, wie sie einer schreibt"


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--most", type=int, default=BACKLOGS[-1], help="the largest backlog")
    most = parser.parse_args().most
    with tempfile.TemporaryDirectory(prefix="scribe-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)
        settings = Settings(home=home)
        engine = migrated_database(settings)
        try:
            house = House(engine, home / "blobs")
            share_of_a_real_page(house, settings)
            claim_and_complete(house)
            for connections in (1, CONNECTIONS):
                page_commits(house, database_url(settings), connections)
            claim_cost(home, [size for size in BACKLOGS if size <= most])
        finally:
            engine.dispose()
            EmbeddedServer(home / "postgres").stop()


def share_of_a_real_page(house: House, settings: Settings) -> None:
    """Print the database's part of a page's wall time, from file to draft, with the real engines and their models loaded."""
    pool = EnginePool(1)
    try:
        for round_number in range(2):  # the first one loads the models
            batch = request_batch(
                house.engine,
                collect([SAMPLE]),
                workspace="default",
                context=None,
                max_attempts=3,
                reservation_seconds=3600,
                again=round_number > 0,
            )
            sources = [
                TranscriptionSource(house.engine, house.store_url, settings.lease_seconds, _drop, batch.id),
                ValidationSource(house.settings, batch.id, _drop, _drop),
                SegmentationSource(house.settings, batch.id, _drop, _drop),
            ]
            with database_seconds(house.engine) as spent:
                started = time.perf_counter()
                drain(sources, pool, settings.lease_seconds, 3600)
                wall = time.perf_counter() - started
    finally:
        pool.stop()
    print(
        f"a page from file to draft     {wall:8.2f} s, of which the database {sum(spent) * 1000:6.1f} ms: {sum(spent) / wall:.2%}"
    )


@contextmanager
def database_seconds(engine: Engine) -> Iterator[list[float]]:
    """Collect the seconds of each statement and each commit."""
    spent: list[float] = []
    began: list[float] = []

    def begin(*_: Any) -> None:
        began.append(time.perf_counter())

    def end(*_: Any) -> None:
        spent.append(time.perf_counter() - began.pop())

    commit = engine.dialect.do_commit

    def timed_commit(connection: Any) -> None:
        started = time.perf_counter()
        commit(connection)
        spent.append(time.perf_counter() - started)

    event.listen(engine, "before_cursor_execute", begin)
    event.listen(engine, "after_cursor_execute", end)
    engine.dialect.do_commit = timed_commit  # type: ignore[method-assign]
    try:
        yield spent
    finally:
        event.remove(engine, "before_cursor_execute", begin)
        event.remove(engine, "after_cursor_execute", end)
        engine.dialect.do_commit = commit  # type: ignore[method-assign]


def claim_and_complete(house: House) -> None:
    """Print what a claim and a commit with their attempt row cost on a page of three lines, singly and four at a time."""
    for limit in (1, 4):
        for _ in range(SMALL_PAGES):
            house.job(house.page())
        claims: list[JobClaim] = []
        claiming = timed(lambda claims=claims, limit=limit: claim_all(house.engine, claims, limit))  # type: ignore[misc]
        completing = timed(lambda claims=claims: [house.complete(claim) for claim in claims])  # type: ignore[misc]
        print(
            f"claim, {limit} at a time            {claiming / SMALL_PAGES * 1000:8.2f} ms a job;"
            f" complete with three lines {completing / SMALL_PAGES * 1000:6.2f} ms"
        )


def claim_all(engine: Engine, claims: list[JobClaim], limit: int) -> None:
    """Claim what there is."""
    while more := claim_jobs(engine, 3600, limit):
        claims += more


def page_commits(house: House, url: str, connections: int) -> None:
    """Print what the commit of a whole page costs, and how many a second so many connections make."""
    scan, lines = a_real_page()
    shapes, words = [_shape(line) for line in lines], [line.text or MANY_LINES for line in lines]
    for _ in range(COMMITS):
        house.job(house.page(*shapes, scan=scan))
    claims: list[JobClaim] = []
    claim_all(house.engine, claims, 50)
    work = [_reading(house.engine, claim, words) for claim in claims]
    engine = connect(url)
    try:
        with ThreadPoolExecutor(connections) as threads:
            each: list[float] = []
            wall = timed(lambda: each.extend(threads.map(lambda item: timed(lambda: complete_job(engine, *item, {})), work)))
    finally:
        engine.dispose()
    print(
        f"commit of {len(lines)} lines, {connections} conn.    {statistics.median(each) * 1000:8.2f} ms median,"
        f" {COMMITS / wall:6.1f} pages a second"
    )


def a_real_page() -> tuple[Path, Sequence[Line]]:
    """Return a scan and its lines: the shared page nearest to 52 lines, or the sample."""
    files = sorted(SHARED.glob("*/*.xml")) if SHARED.is_dir() else [SAMPLE.with_suffix(".xml")]
    pages = {file: read_ground_truth(file) for file in files}
    file = min(files, key=lambda file: abs(len(pages[file]) - LINES_OF_A_PAGE))
    scan = next(path for path in file.parent.iterdir() if path.stem == file.stem and path.suffix != ".xml")
    return scan, pages[file]


def _shape(line: Line) -> LineShape:
    polygon = tuple((max(0, round(x)), max(0, round(y))) for x, y in line.polygon)
    xs, ys = zip(*polygon, strict=True)
    return LineShape(((min(xs), max(ys)), (max(xs), max(ys))), polygon)


def _reading(engine: Engine, claim: JobClaim, words: Sequence[str]) -> tuple[JobClaim, Image, dict[str, LineText]]:
    with engine.connect() as connection:
        image, head = load_image(connection, claim.item_image_id), load_head(connection, claim.item_image_id)
    assert image is not None and head is not None
    ids = [line.annotation_id for line in read_lines(head.payload)]
    return claim, image, {name: LineText(word, 0.9) for name, word in zip(ids, words, strict=True)}


def claim_cost(home: Path, backlogs: Sequence[int]) -> None:
    """Print what a claim costs at each backlog, each in a database of its own and claimed from in turns, and the ratios."""
    server = EmbeddedServer(home / "postgres")
    for spaces in WORKSPACES:
        engines = {}
        for backlog in backlogs:
            name = f"backlog_{backlog}_{spaces}"
            server.ensure_database(name)
            engines[backlog] = connect(server.url(name))
            upgrade(engines[backlog])
            fill(House(engines[backlog], home / "blobs"), backlog, spaces)
        samples: dict[int, list[float]] = {backlog: [] for backlog in backlogs}
        for _ in range(CLAIMS):
            for backlog, engine in engines.items():
                samples[backlog].append(timed(partial(claim_jobs, engine, 3600)))
        cost = {backlog: statistics.median(times) for backlog, times in samples.items()}
        for backlog in backlogs:
            ratio = cost[backlog] / cost[backlogs[0]]
            print(f"claim at {backlog:>9,} jobs, {spaces:>3} ws {cost[backlog] * 1000:8.2f} ms median of {CLAIMS}: {ratio:.2f}")
            engines[backlog].dispose()


def fill(house: House, backlog: int, spaces: int) -> None:
    """Insert pending jobs by SQL, evenly over workspaces; claims need no pages."""
    house.execute("DELETE FROM workspaces")
    house.execute(
        "INSERT INTO workspaces (id, name) SELECT gen_random_uuid(), 'workspace ' || n FROM generate_series(1, :spaces) AS n",
        spaces=spaces,
    )
    house.execute(
        """
        WITH owner AS (SELECT id, row_number() OVER (ORDER BY id) - 1 AS number FROM workspaces)
        INSERT INTO transcription_jobs
            (id, workspace_id, item_image_id, context_id, context_snapshot, input_revision, max_attempts, created_at)
        SELECT gen_random_uuid(), owner.id, gen_random_uuid(), context.id, '{"name":"letter"}', 1, 3,
               clock_timestamp() - interval '1 day' + n * interval '1 millisecond'
        FROM generate_series(1, :backlog) AS n
        JOIN owner ON owner.number = n % :spaces
        JOIN contexts AS context ON context.name = 'letter'
        """,
        backlog=backlog,
        spaces=spaces,
    )
    with house.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("VACUUM ANALYZE transcription_jobs"))


def timed(work: Callable[[], Any]) -> float:
    """Return how many seconds the work took."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _drop(_: object) -> None:
    """Hear of a page and do nothing."""


if __name__ == "__main__":
    main()
