"""What the pipeline costs beyond the engines: the same pages through `process_ingest_batch` and through bare engine calls.

Both run in as many processes, one after the other, in one run of this script; only the ratio means anything. Then the Dagster
part alone: the job on batches of pages with engines that answer at once, on the persistent instance, by number of pages.

    python benchmarks/overhead.py [PAGE...]      default: eight pages of ../shared/pages, else the samples
"""

import argparse
import hashlib
import io
import os
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dagster as dg
from PIL import Image
from sqlalchemy import Engine

from assets import run_config
from definitions import build_defs
from resources import dagster_instance
from scribe_pipeline.config import Settings
from scribe_pipeline.database import EmbeddedServer, database_url, migrated_database
from scribe_pipeline.engines import EnginePool, segment, tasks, transcribe
from scribe_pipeline.ingest import Batch, collect, load_batch, request_batch
from scribe_pipeline.storage import new_object_key, open_store, store_url
from tests.houses import FakeEngines, InlinePool, line_shape

SHARED = Path(__file__).parents[2] / "shared" / "pages"
SAMPLES = Path(__file__).parents[1] / "samples"
PAGES = ("letters", "medieval/lat-textualis-15c-sbb-hdschr25-021v.jpg", "medieval/lat-textualis-15c-sbb-hdschr25-022r.jpg")
LAST_PAGE = "newspapers/eng-print-20c-udolpho-p27.png"
FEW, MANY, REPEATS = 10, 110, 3


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


def compare_with_bare_engines(settings: Settings, engine: Engine, instance: dg.DagsterInstance, pages: list[Path]) -> None:
    """Print the wall time of both ways, each with processes of its own that load their models within it."""
    print(f"{len(pages)} pages, {settings.workers} processes")
    bare = timed(lambda: bare_engines(settings, pages))
    print(f"bare engines  {bare:7.1f} s")

    def pipeline() -> None:
        batch = request_batch(engine, collect(pages), workspace="default", context=None, max_attempts=3, reservation_seconds=3600)
        pool = EnginePool(settings.workers)
        try:
            run(settings, engine, instance, batch, pool)
        finally:
            pool.stop()

    whole = timed(pipeline)
    print(f"pipeline      {whole:7.1f} s")
    print(f"ratio         {whole / bare:7.3f}")


def bare_engines(settings: Settings, pages: list[Path]) -> None:
    """Segment and read each page, the next one as soon as a process is idle."""
    pool = EnginePool(settings.workers)
    url = store_url(settings)
    keys = []
    for page in pages:
        data = page.read_bytes()
        keys.append(new_object_key(hashlib.sha256(data).hexdigest(), page.suffix[1:].lower()))
        open_store(url).write(keys[-1], data, "bench")
    waiting, busy = list(reversed(keys)), {}
    try:
        while waiting or busy:
            while waiting and pool.idle:
                key = waiting.pop()
                busy[pool.submit(segment_and_transcribe, url, key)] = key
            for ticket in [ticket for ticket in busy if ticket.future.done()]:
                ticket.future.result()
                pool.release(ticket)
                del busy[ticket]
            time.sleep(0.005)
    finally:
        pool.stop()


def segment_and_transcribe(url: str, key: str) -> None:
    """Do to a page what the pipeline's engines do."""
    found = segment(url, key, "kraken-blla", False)
    transcribe(url, key, "local", "PP-OCRv6_rec_small", found.lines)


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
