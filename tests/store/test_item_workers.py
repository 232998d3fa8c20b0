"""Workers, and others, who meet the deletion of what they work on: whoever comes first, nothing of it is left afterwards."""

import re
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from sqlalchemy import Engine, event

from scribe_pipeline.database import connect
from scribe_pipeline.engines import LineText
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.exports import derive_exports
from scribe_pipeline.ingest import IngestSettings, ValidationSource, cancel_batch, settle_batch
from scribe_pipeline.jobs import (
    TranscriptionSource,
    claim_jobs,
    complete_job,
    drain,
    end_attempt,
    record_progress,
    renew_claim,
    request_job,
)
from scribe_pipeline.pages import load_head, load_image, read_lines, save_page
from scribe_pipeline.storage import open_store
from tests.houses import FakeEngines, House, InlinePool, png
from tests.store.test_items import OPERATOR, furnished, nothing_is_left, remove
from tests.work import Work

BLOCKED = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"

# What somebody does with the one item that there is, through the connections given; each function below prepares it.
Act = Callable[[Engine], object]


def settings(house: House, engine: Engine) -> IngestSettings:
    """The house's settings for another worker's database."""
    return replace(house.settings, engine=engine)


def validates(house: House) -> Act:
    """A worker that has stored a scan and is about to say so."""
    batch = house.batch({"a.png": png()}, house.folder / "in")
    claimed = ValidationSource(house.settings, batch.id, lambda _: None, lambda _: None)
    (unit,) = claimed.claim(1)
    result = unit.task(*unit.arguments)

    def finish(engine: Engine) -> None:
        unit._settings = settings(house, engine)
        unit.finish(result)

    return finish


def refuses(house: House) -> Act:
    """A worker that has found a file to be damaged."""
    batch = house.batch({"a.png": png()}, house.folder / "in")
    (unit,) = ValidationSource(house.settings, batch.id, print, lambda _: None).claim(1)

    def fail(engine: Engine) -> None:
        unit._settings = settings(house, engine)
        unit.fail(Category.DAMAGED, "a.png is damaged")

    return fail


def stores(house: House) -> Act:
    """A worker that takes the next file."""
    batch = house.batch({"a.png": png()}, house.folder / "in")
    return lambda engine: ValidationSource(settings(house, engine), batch.id, lambda _: None, lambda _: None).claim(1)


def segments(house: House) -> Act:
    """A worker that has found a page's lines."""
    work = Work(house, house.batch({"a.png": png()}, house.folder / "in"))
    work.validate()
    (unit,) = work.segmentation().claim(1)
    result = unit.task(*unit.arguments)

    def finish(engine: Engine) -> None:
        unit._settings = settings(house, engine)
        unit.finish(result)

    return finish


def claims(house: House) -> Act:
    """A worker that takes the next job."""
    house.ingested(1)
    return lambda engine: claim_jobs(engine, 60)


def completes(house: House) -> Act:
    """A worker that has read a page's lines."""
    house.ingested(1)
    claim = house.claim()
    with house.engine.connect() as connection:
        image, head = load_image(connection, claim.item_image_id), load_head(connection, claim.item_image_id)
    assert image is not None and head is not None
    texts = {line.annotation_id: LineText("text", 0.9) for line in read_lines(head.payload)}
    return lambda engine: complete_job(engine, claim, image, texts, {})


def gives_up(house: House) -> Act:
    """A worker that could read none of them."""
    house.ingested(1)
    claim = house.claim()
    return lambda engine: end_attempt(engine, claim, Category.UPSTREAM)


def saves(house: House) -> Act:
    """A person with a correction."""
    image = house.page()
    with house.engine.connect() as connection:
        head = load_head(connection, image.id)
    assert head is not None
    return lambda engine: save_page(engine, image.id, 1, head.payload, "reader")


def asks(house: House) -> Act:
    """An operator who wants a page to be read anew."""
    _, (image,) = house.ingested(1)
    return lambda engine: request_job(engine, image.id, "newspaper", 3, OPERATOR)


def exports(house: House) -> Act:
    """A worker that makes a draft's exports."""
    _, (image,) = house.ingested(1)
    house.complete(house.claim())
    return lambda engine: derive_exports(engine, open_store(house.store_url), image.id, 2)


def cancels(house: House) -> Act:
    """An operator who cancels the batch."""
    batch_id, _ = house.ingested(1, incomplete=1)
    return lambda engine: cancel_batch(engine, batch_id, OPERATOR)


def settles(house: House) -> Act:
    """A run that has come to its end."""
    batch_id, _ = house.ingested(1)
    return lambda engine: settle_batch(engine, batch_id, 0)


def deletes(house: House) -> Act:
    """Another who deletes it."""
    item_id = furnished(house)
    return lambda engine: remove(house, item_id, engine)


WORKERS = {
    worker.__name__: worker
    for worker in (
        validates, refuses, stores, segments, claims, completes, gives_up, saves, asks, exports, cancels, settles, deletes,
    )
}  # fmt: skip


@pytest.fixture
def elsewhere(database_url: str) -> Iterator[Engine]:
    """The same database as another process has it."""
    made = connect(database_url)
    yield made
    made.dispose()


@pytest.mark.parametrize("worker", WORKERS)
def test_nothing_is_written_after_a_deletion(house: House, engines: FakeEngines, worker: str) -> None:
    """R81, R27: validation, segmentation, transcription, save, exports and all others: not a row, and no object that nobody owns.

    Who held something, or names something of it, is told that it is lost, or not there.
    """
    write = WORKERS[worker](house)
    remove(house, house.value("SELECT id FROM items"))
    before = house.everything()
    told = category_of(partial(write, house.engine))
    assert house.everything() == before
    assert nothing_is_left(house)
    assert (told is None) == (worker in ("stores", "claims"))


def test_late_progress_and_renewal(house: House) -> None:
    """R81, R27: what a running job's worker says in between is not taken either."""
    house.ingested(1)
    claim = house.claim()
    remove(house, house.value("SELECT id FROM items"))
    assert not renew_claim(house.engine, claim)
    assert category_of(lambda: record_progress(house.engine, claim, 1, 0)) is Category.LEASE_LOST


def category_of(work: Callable[[], object]) -> Category | None:
    """What the work is refused for, if it is."""
    try:
        work()
    except ScribeError as error:
        return error.category
    return None


def meeting(house: House, first: Act, second: Act, ours: Engine, theirs: Engine, begins: str) -> list[Category | None]:
    """Start the second once the first has sent a statement that begins or ends so, and let it come as far as it can."""
    begun: list[Future[Category | None]] = []
    with ThreadPoolExecutor(1) as pool:

        def start(_connection: object, _cursor: object, sql: str, *_rest: object) -> None:
            if not begun and re.search(begins, sql):
                begun.append(pool.submit(category_of, lambda: second(theirs)))
                while not begun[0].done() and not house.value(BLOCKED):
                    pass

        event.listen(ours, "after_cursor_execute", start)
        told = category_of(lambda: first(ours))
        event.remove(ours, "after_cursor_execute", start)
        assert begun, "the first one sent no such statement"
        return [told, begun[0].result(60)]


ANY_LOCK = "FOR UPDATE|^UPDATE|^INSERT|^DELETE"


@pytest.mark.parametrize("begins", [ANY_LOCK, "^SET LOCAL"])
@pytest.mark.parametrize("worker", WORKERS)
def test_a_worker_meets_a_deletion(house: House, elsewhere: Engine, engines: FakeEngines, worker: str, begins: str) -> None:
    """R81, R144: a worker that comes while the deletion has its first lock, or all of them, is too early or too late.

    In either case nothing of the item is left, and there is no deadlock.
    """
    write = WORKERS[worker](house)
    item_id = house.value("SELECT id FROM items")
    told, refused = meeting(house, partial(remove, house, item_id), write, house.engine, elsewhere, begins)
    assert told is None
    assert refused is not Category.PAGE_CHANGED, "there is no page that could have changed"
    assert nothing_is_left(house)


@pytest.mark.parametrize("worker", WORKERS)
def test_a_deletion_meets_a_worker(house: House, elsewhere: Engine, engines: FakeEngines, worker: str) -> None:
    """R81, R144: a deletion that comes when a worker has its first lock takes away what that worker is just writing."""
    write = WORKERS[worker](house)
    item_id = house.value("SELECT id FROM items")
    _, told = meeting(house, write, partial(remove, house, item_id), elsewhere, house.engine, ANY_LOCK)
    assert told is (Category.NOT_FOUND if worker == "deletes" else None)
    assert nothing_is_left(house)
    assert house.value("SELECT count(*) FROM operator_audit WHERE action = 'item delete'") == 1


def test_a_worker_goes_on_with_other_items(house: House, engines: FakeEngines, monkeypatch: pytest.MonkeyPatch) -> None:
    """R81: a job whose item is deleted right after it was claimed costs no other job an attempt."""
    _, (gone,) = house.ingested(1)
    _, (other,) = house.ingested(1)

    def claimed(*arguments: Any) -> Any:
        claims = claim_jobs(*arguments)
        if house.value("SELECT count(*) FROM items") == 2:
            remove(house, gone.item_id)
        return claims

    monkeypatch.setattr("scribe_pipeline.jobs.transcription.claim_jobs", claimed)
    drain([TranscriptionSource(house.engine, house.store_url, 60, lambda _: None)], InlinePool(), 60, 60)
    assert [tuple(row) for row in house.rows("SELECT item_image_id, status, attempt_count FROM transcription_jobs")] == [
        (other.id, "completed", 1)
    ]


@pytest.mark.parametrize("scope", ["= 'global'", "<> 'global'"])
@pytest.mark.parametrize("worker", ["validates", "stores", "deletes"])
def test_who_refers_to_a_scan_takes_the_guards(house: House, impatient: House, worker: str, scope: str) -> None:
    """R66: whoever stores a scan, refers to one, or hands one over, waits for who holds either of its workspace's counters."""
    write = WORKERS[worker](house)
    before = house.everything()
    with house.engine.connect() as busy:
        busy.exec_driver_sql(f"SELECT FROM storage_quota_usage WHERE scope {scope} FOR UPDATE")
        with pytest.raises(ScribeError, match="55P03"):
            write(house.engine)
        busy.rollback()
    changed = {table for table, rows in house.everything().items() if rows != before[table]}
    assert changed <= {"ingest_batch_files"}, "no more than the claim of a file"
