"""What the pipeline costs beyond the engines: the same pages through `process_ingest_batch` and through bare engine calls.

Both run in as many processes, one after the other, in one run of this script; of their wall times only the ratio means anything.
With them comes the CPU time that a page costs outside the engines. It is user and system time of this process and of its worker
processes (getrusage, once they have ended), less what the workers used within calls of the engines and to load them (process_time
around each call, in both ways alike), and less what a worker needs to start. The database server's is counted by itself.

Then a page of 30 lines is read by a provider that takes a second for each, six at once. Its server is a process that is not
counted; a call of it, with the coding of its crop, is the engine's (thread_time). Last the Dagster part alone: the job on batches
of pages with engines that answer at once, on the persistent instance, by number of pages.

    python benchmarks/overhead.py [PAGE...]      default: eight pages of ../shared/pages, else the samples
"""

import argparse
import functools
import hashlib
import io
import json
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import dagster as dg
import psutil
from PIL import Image
from sqlalchemy import Engine

from assets import run_config
from definitions import build_defs
from resources import dagster_instance
from scribe_pipeline.config import Settings
from scribe_pipeline.database import EmbeddedServer, database_url, migrated_database
from scribe_pipeline.engines import EnginePool, ReadingOptions, Ticket, registry, segment, tasks, transcribe
from scribe_pipeline.ingest import Batch, collect, load_batch, request_batch
from scribe_pipeline.jobs import TranscribedPage, TranscriptionSource, drain
from scribe_pipeline.storage import new_object_key, open_store, store_url
from tests.houses import FakeEngines, House, InlinePool, line_shape
from tests.providers import KEY, Asked, Provider, registry_file
from tests.store.providing import context

SHARED = Path(__file__).parents[2] / "shared" / "pages"
SAMPLES = Path(__file__).parents[1] / "samples"
PAGES = ("letters", "medieval/lat-textualis-15c-sbb-hdschr25-021v.jpg", "medieval/lat-textualis-15c-sbb-hdschr25-022r.jpg")
LAST_PAGE = "newspapers/eng-print-20c-udolpho-p27.png"
FEW, MANY, REPEATS = 10, 110, 3
LINES, AT_ONCE, ANSWER_SECONDS, PROVIDER_PAGES = 30, 6, 1.0, 3


def main() -> None:
    """Measure and print."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path)
    pages = parser.parse_args().pages or default_pages()
    with tempfile.TemporaryDirectory(prefix="scribe-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)
        settings = Settings(home=home)
        engine = migrated_database(settings)
        try:
            with dagster_instance(settings, database_url(settings)) as instance:
                compare_with_bare_engines(settings, engine, instance, pages)
                read_by_a_provider(settings, engine)
                measure_dagster(settings, engine, instance, home / "drawn")
        finally:
            engine.dispose()
            EmbeddedServer(home / "postgres").stop()


def default_pages() -> list[Path]:
    """Return eight real pages, or the samples where there are none."""
    if not SHARED.is_dir():
        return [SAMPLES / "letter.jpg", SAMPLES / "newspaper.png"]
    letters = sorted((SHARED / "letters").glob("*.jpg"))
    return [*letters, *(SHARED / name for name in PAGES[1:]), SHARED / LAST_PAGE]


@dataclass(frozen=True)
class Cost:
    """What some work has cost, seconds: of the clock, and of CPUs by whom they were used."""

    wall: float
    all: float
    engines: float
    starts: float
    server: float

    @property
    def outside(self) -> float:
        """What is neither an engine's nor the start of a worker."""
        return self.all - self.engines - self.starts


class ClockedPool(EnginePool):
    """Has each worker note in a folder what its start and its engines cost."""

    def __init__(self, workers: int, notes: Path) -> None:
        super().__init__(workers)
        self._notes = notes

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Ticket:
        """Run the task with clocks around its engines."""
        return super().submit(clocked_task, self._notes, task, *arguments)


class ClockedEngine:
    """A segmentor or a transcriber that adds up the CPU time of its calls."""

    seconds = 0.0

    def __init__(self, load: Callable[..., Any], *which: Any) -> None:
        before = time.process_time()
        self._engine = load(*which)
        # what several threads use at once, the process's clock would count several times
        self._clock = time.thread_time if getattr(self._engine, "concurrent", False) else time.process_time
        ClockedEngine.seconds += time.process_time() - before

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._engine, name)
        return functools.partial(self._call, found) if name in ("segment", "transcribe") else found

    def _call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        before = self._clock()
        try:
            return method(*arguments)
        finally:
            ClockedEngine.seconds += self._clock() - before


@functools.cache
def begin_clocks() -> float:
    """Put clocks around the engines of this process, and return what it has used until now, seconds."""
    begun = time.process_time()
    tasks.segmentor = functools.cache(functools.partial(ClockedEngine, registry.segmentor))  # type: ignore[assignment]
    tasks.transcriber = functools.cache(functools.partial(ClockedEngine, registry.transcriber))  # type: ignore[assignment]
    return begun


def clocked_task(notes: Path, task: Callable[..., Any], *arguments: Any) -> Any:
    """Run the task in this process, and note what the start of the process and all its engines have cost."""
    begun = begin_clocks()
    try:
        return task(*arguments)
    finally:
        (notes / str(os.getpid())).write_text(json.dumps([begun, ClockedEngine.seconds]))


def cost_of(home: Path, workers: int, work: Callable[[EnginePool], object]) -> Cost:
    """Do something with a pool of its own, and say what that has cost."""
    with tempfile.TemporaryDirectory() as notes:

        def pooled() -> None:
            pool = ClockedPool(workers, Path(notes))
            try:
                work(pool)
            finally:
                # whoever has ended is in this process's account
                pool.stop()

        server, before = server_seconds(home), own_seconds()
        wall = timed(pooled)
        seconds, server = own_seconds() - before, server_seconds(home) - server
        starts, engines = map(sum, zip(*(json.loads(note.read_text()) for note in Path(notes).iterdir()), strict=True))
    return Cost(wall, seconds, engines, starts, server)


def own_seconds() -> float:
    """CPU time of this process and of those children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def server_seconds(home: Path) -> float:
    """CPU time of the database server, of its processes that have ended too where the system tells (Linux)."""
    server = psutil.Process(int((home / "postgres" / "data" / "postmaster.pid").read_text().split()[0]))
    return sum(sum(process.cpu_times()[:4]) for process in (server, *server.children(recursive=True)))


def compare_with_bare_engines(settings: Settings, engine: Engine, instance: dg.DagsterInstance, pages: list[Path]) -> None:
    """Print wall and CPU time of both ways, each with processes of its own that load their models within it."""

    def pipeline(pool: EnginePool) -> None:
        batch = request_batch(engine, collect(pages), workspace="default", context=None, max_attempts=3, reservation_seconds=3600)
        run(settings, engine, instance, batch, pool)

    print(f"{len(pages)} pages, {settings.workers} processes")
    bare = cost_of(settings.home, settings.workers, lambda pool: bare_engines(settings, pages, pool))
    whole = cost_of(settings.home, settings.workers, pipeline)
    for name, cost in (("bare engines", bare), ("pipeline", whole)):
        print(
            f"{name:14}{cost.wall:7.1f} s; CPU {cost.all:7.1f} s, of it engines {cost.engines:7.1f} s, starts {cost.starts:5.1f} s"
        )
    print(f"ratio         {whole.wall / bare.wall:7.3f}")
    for name, cost in (("bare engines", bare), ("pipeline", whole)):
        print(f"CPU time outside the engines, a page: {name:13} {say_outside(cost, len(pages))}")


def say_outside(cost: Cost, pages: int) -> str:
    """A page's part of what was used outside the engines."""
    return f"{1000 * cost.outside / pages:6.0f} ms, and {1000 * cost.server / pages:.0f} ms of the database server"


def read_by_a_provider(settings: Settings, engine: Engine) -> None:
    """Print how long pages of 30 lines take with a provider that answers after a second, and what they cost outside of it.

    In a process that has never been answered, the first line has half a second for itself.
    """
    house, double = House(engine, settings.home / "blobs"), Provider("gemini")
    context(house, double, line_concurrency=AT_ONCE)
    with Image.open(SAMPLES / "letter.jpg") as scan:
        width, height = scan.size
    shapes = [line_shape(row * (height - 40) // LINES, 10, width - 10) for row in range(LINES)]
    for _ in range(PROVIDER_PAGES):
        house.job(house.page(*shapes, scan=SAMPLES / "letter.jpg"), context="remote")
    read: list[TranscribedPage] = []

    def reading(pool: EnginePool) -> None:
        source = TranscriptionSource(engine, house.store_url, settings.lease_seconds, read.append)
        drain([source], pool, settings.lease_seconds, 600)

    with slow_provider() as (entry, provider):
        os.environ |= {"SCRIBE_MODELS_FILE": str(registry_file(settings.home, entry)), "TEST_PROVIDER_KEY": KEY}
        cost = cost_of(settings.home, 1, reading)
        provider.send("enough")
        asked = provider.recv()
    assert len(asked) == LINES * PROVIDER_PAGES and not any(page.failed_lines or page.error_category for page in read)
    print(f"a provider that answers in {ANSWER_SECONDS:.0f} s, {LINES} lines, {AT_ONCE} at once")
    for number, page in enumerate(read):
        moments = asked[LINES * number : LINES * (number + 1)]
        at_provider = moments[-1] - moments[0] + ANSWER_SECONDS
        print(f"page {number + 1}        {page.seconds:7.2f} s, at the provider {at_provider:.2f} s")
    print(f"CPU time outside the engine, a page: {say_outside(cost, PROVIDER_PAGES)}")


@contextmanager
def slow_provider() -> Iterator[tuple[dict[str, Any], Connection]]:
    """A provider in a process of its own: its entry of the registry, and whom to ask when it was asked for each line."""
    spawn = multiprocessing.get_context("spawn")
    ours, its = spawn.Pipe()
    process = spawn.Process(target=serve, args=(its,), daemon=True)
    process.start()
    try:
        yield ours.recv(), ours
    finally:
        process.terminate()
        process.join()


def serve(parent: Connection) -> None:
    """Be the provider until the parent has had enough, and send the moments of all readings, seconds."""
    moments: list[float] = []

    def says(asked: Asked) -> str:
        moments.append(time.monotonic())
        return f"line {asked.number}"

    with Provider("gemini") as double:
        double.says = says
        double.before = lambda _: time.sleep(ANSWER_SECONDS)
        parent.send(double.model())
        parent.recv()
        parent.send(sorted(moments))


def bare_engines(settings: Settings, pages: list[Path], pool: EnginePool) -> None:
    """Segment and read each page, the next one as soon as a process is idle."""
    url = store_url(settings)
    keys = []
    for page in pages:
        data = page.read_bytes()
        keys.append(new_object_key(hashlib.sha256(data).hexdigest(), page.suffix[1:].lower()))
        open_store(url).write(keys[-1], data, "bench")
    waiting, busy = list(reversed(keys)), {}
    while waiting or busy:
        while waiting and pool.idle:
            key = waiting.pop()
            busy[pool.submit(segment_and_transcribe, url, key)] = key
        for ticket in [ticket for ticket in busy if ticket.future.done()]:
            ticket.future.result()
            pool.release(ticket)
            del busy[ticket]
        time.sleep(0.005)


def segment_and_transcribe(url: str, key: str) -> None:
    """Do to a page what the pipeline's engines do."""
    found = segment(url, key, "kraken-blla", False)
    transcribe(url, key, "local", "PP-OCRv6_rec_small", ReadingOptions(), found.lines)


def measure_dagster(settings: Settings, engine: Engine, instance: dg.DagsterInstance, folder: Path) -> None:
    """Print the fixed part of a run, and the part that grows with its pages, in time and in event rows.

    A run with engines that answer at once is compared with the same work done without Dagster.
    """
    fake = FakeEngines(lines=(line_shape(20), line_shape(70)))
    tasks.segmentor = fake.segmentor  # type: ignore[assignment]
    tasks.transcriber = fake.transcriber  # type: ignore[assignment]
    seconds: dict[int, list[float]] = {FEW: [], MANY: []}
    events: dict[int, int] = {}
    plain: dict[int, list[float]] = {FEW: [], MANY: []}
    for repeat in range(REPEATS):
        for number in (FEW, MANY):
            with_dagster = drawn_batch(engine, folder / f"{repeat}-{number}", number)
            before = time.perf_counter()
            result = run(settings, engine, instance, with_dagster, InlinePool())
            seconds[number].append(time.perf_counter() - before)
            events[number] = len(instance.all_logs(result.run_id))
            without = drawn_batch(engine, folder / f"{repeat}-{number}", number)
            plain[number].append(timed(lambda batch=without: run_without_dagster(settings, engine, batch)))  # type: ignore[misc]
    whole = {number: statistics.median(seconds[number]) for number in (FEW, MANY)}
    rest = {number: statistics.median(plain[number]) for number in (FEW, MANY)}
    rest_a_page = (rest[MANY] - rest[FEW]) / (MANY - FEW)
    a_page = (whole[MANY] - whole[FEW]) / (MANY - FEW) - rest_a_page
    print(f"Dagster, a run     {1000 * (whole[FEW] - rest[FEW] - FEW * a_page):7.0f} ms fixed")
    print(f"Dagster, a page    {1000 * a_page:7.2f} ms")
    print(f"all else, a page   {1000 * rest_a_page:7.2f} ms (files, decoding, database; no engine)")
    print(f"event rows of a run with {FEW} pages: {events[FEW]}, with {MANY}: {events[MANY]}")


def run(settings: Settings, engine: Engine, instance: dg.DagsterInstance, batch: Batch, pool: EnginePool) -> Any:
    """Execute the job on a batch, and see that it is completed."""
    defs = build_defs(settings=settings, database=engine, pool=pool)
    result = defs.resolve_job_def("process_ingest_batch").execute_in_process(
        instance=instance,
        run_config=run_config(batch) | {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
    )
    with engine.connect() as connection:
        assert load_batch(connection, batch.id).status == "completed"
    return result


def run_without_dagster(settings: Settings, engine: Engine, batch: Batch) -> None:
    """Do what the ops do, without them."""
    from resources import ingest_settings
    from scribe_pipeline.ingest import SegmentationSource, ValidationSource, settle_batch
    from scribe_pipeline.jobs import TranscriptionSource, drain

    def drop(_: object) -> None:
        return None

    pool, needed = InlinePool(), ingest_settings(settings, engine)
    drain([ValidationSource(needed, batch.id, drop, drop)], pool, settings.lease_seconds, 600)
    reading = TranscriptionSource(engine, needed.store_url, settings.lease_seconds, drop, batch.id)
    drain([reading, SegmentationSource(needed, batch.id, drop, drop, previews=12)], pool, settings.lease_seconds, 600)
    settle_batch(engine, batch.id, batch.dispatch_generation)


def drawn_batch(engine: Engine, folder: Path, number: int) -> Batch:
    """Return a new batch of small pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    for index in range(number):
        out = io.BytesIO()
        Image.new("RGB", (400, 300), (index, 0, 0)).save(out, "PNG")
        (folder / f"{index}.png").write_bytes(out.getvalue())
    return request_batch(
        engine, collect([folder]), workspace="default", context=None, max_attempts=3, reservation_seconds=3600, again=True
    )


def timed(work: Callable[[], object]) -> float:
    """Return how long it takes, seconds."""
    os.sync()
    before = time.perf_counter()
    work()
    return time.perf_counter() - before


if __name__ == "__main__":
    main()
