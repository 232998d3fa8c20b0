"""Canceling a batch: all of it or nothing, and nothing of it afterwards."""

import re
import threading
from uuid import UUID, uuid4

import pytest
from sqlalchemy import event, select, text

from scribe_pipeline.database import one_of
from scribe_pipeline.database.tables import transcription_jobs
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import cancel_batch, load_batch
from scribe_pipeline.jobs import claim_jobs, record_progress, renew_claim, request_job
from tests.houses import FakeEngines, House, png, stopped_after
from tests.work import Work

OPERATOR = Operator("anna@archive", "wrong folder")


def cancel(house: House, batch_id: UUID) -> bool:
    """Cancel the batch."""
    return cancel_batch(house.engine, batch_id, OPERATOR)


def test_everything_open_is_canceled(house: House) -> None:
    """R23, R24, R119: pending and running jobs, the running attempt, the files and the batch; what is complete stays."""
    batch, _images = house.ingested(4, incomplete=2)
    done = house.claim()
    house.complete(done)
    running = house.claim()
    assert cancel(house, batch)
    assert house.rows("SELECT status, count(*) FROM transcription_jobs GROUP BY status ORDER BY status") == [
        ("canceled", 3), ("completed", 1)
    ]  # fmt: skip
    assert house.rows("SELECT status, lease_token, lease_until FROM transcription_jobs WHERE id = :id", id=running.job_id) == [
        ("canceled", None, None)
    ]
    outcomes = dict(house.rows("SELECT job_id, outcome FROM transcription_job_attempts"))
    assert outcomes == {done.job_id: "completed", running.job_id: "canceled"}
    assert house.rows("SELECT status, count(*) FROM ingest_batch_files GROUP BY status ORDER BY status") == [
        ("canceled", 2), ("completed", 4)
    ]  # fmt: skip
    with house.engine.connect() as connection:
        assert load_batch(connection, batch).status == "canceled"
    assert house.value("SELECT count(*) FROM event_outbox WHERE event_type LIKE '%canceled'") == 3
    assert house.rows("SELECT actor, action, reason FROM operator_audit") == [("anna@archive", "batch cancel", "wrong folder")]


def test_incomplete_images_go_and_their_objects_are_handed_over(house: House) -> None:
    """R26, R27: images without a page are removed; their objects wait in the cleanup outbox, with owner and size."""
    batch, images = house.ingested(1, incomplete=2)
    cancel(house, batch)
    assert house.rows("SELECT id FROM item_images") == [(images[0].id,)]
    assert house.value("SELECT count(*) FROM annotation_pages") == 1
    rows = house.rows("SELECT resource_key, kind, status, storage_bytes, workspace_id FROM resource_cleanup_outbox ORDER BY 1")
    assert rows == sorted(
        (image.object_key, "upload_blob", "pending", image.storage_bytes, image.workspace_id) for image in images[1:]
    )
    assert house.rows("SELECT item_image_id FROM ingest_batch_files WHERE sequence > 1") == [(None,), (None,)]


def test_what_a_worker_may_just_be_writing_keeps_its_deadline(house: House) -> None:
    """R26: an object noted by a running claim stays staged: its worker may be writing it until its own deadline."""
    batch, (image,) = house.ingested(0, incomplete=1)
    house.unstore(image.id)
    cancel(house, batch)
    waiting = "SELECT resource_key, status, round(extract(epoch FROM next_attempt_at - created_at)) FROM resource_cleanup_outbox"
    assert house.rows(waiting) == [(image.object_key, "staged", 3600)]


def test_a_late_worker_restores_nothing(house: House) -> None:
    """R27, R120: after the cancel has returned, progress, renewal and completion of its workers change nothing."""
    batch, _ = house.ingested(2)
    claims = claim_jobs(house.engine, 60, limit=2)
    cancel(house, batch)
    before = house.everything()
    for claim in claims:
        assert not renew_claim(house.engine, claim)
        for write in (lambda claim=claim: record_progress(house.engine, claim, 1, 0), lambda claim=claim: house.complete(claim)):
            with pytest.raises(ScribeError) as caught:
                write()
            assert caught.value.category is Category.LEASE_LOST
    assert house.everything() == before
    assert claim_jobs(house.engine, 60) == []


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ingest_batches",
        "UPDATE transcription_jobs",
        "UPDATE transcription_job_attempts",
        "INSERT INTO event_outbox",
        "UPDATE ingest_batch_files",
        "INSERT INTO resource_cleanup_outbox",
        "DELETE FROM item_images",
        "INSERT INTO operator_audit",
    ],
)
def test_a_cancel_that_fails_on_its_way_changes_nothing(house: House, statement: str) -> None:
    """R25, R119: whichever of its writes is the last one before a failure, nothing of the batch has changed."""
    batch, _ = house.ingested(2, incomplete=1)
    house.claim()
    before = house.everything()
    with stopped_after(house.engine, statement):
        cancel(house, batch)
    assert house.everything() == before
    assert cancel(house, batch)


def test_a_reader_sees_all_of_it_or_nothing(house: House) -> None:
    """R25: while the cancel is under way, another session sees the batch with all its jobs as they were."""
    batch, _ = house.ingested(3)
    seen: list[set[str]] = []

    def look(_c: object, _k: object, sql: str, *_rest: object) -> None:
        if sql.startswith(("UPDATE", "DELETE", "INSERT")):
            seen.append({row.status for row in house.rows("SELECT status FROM transcription_jobs")})

    event.listen(house.engine, "after_cursor_execute", look)
    cancel(house, batch)
    event.remove(house.engine, "after_cursor_execute", look)
    assert len(seen) > 5
    assert all(statuses == {"pending"} for statuses in seen)


def test_tokens_die_before_images_go(house: House) -> None:
    """R26: in the one transaction, jobs and attempts are closed before the first image is removed."""
    batch, _ = house.ingested(1, incomplete=1)
    house.claim()
    order: list[str] = []
    event.listen(house.engine, "before_cursor_execute", lambda *args: order.append(args[2]))
    cancel(house, batch)
    writes = [found.group(1) for sql in order if (found := re.match(r"(?:UPDATE|DELETE FROM) (\w+)", sql))]
    assert writes.index("transcription_jobs") < writes.index("transcription_job_attempts") < writes.index("item_images")
    locks = [re.search(r"FROM (\w+)", sql).group(1) for sql in order if "FOR UPDATE" in sql]  # type: ignore[union-attr]
    assert locks == ["storage_quota_usage", "ingest_batches", "ingest_batch_files", "item_images", "transcription_jobs"]


def test_a_successor_made_meanwhile_is_canceled_too(house: House) -> None:
    """R23, R119: a job that is being superseded while the cancel waits for it does not escape in its successor."""
    batch, (image,) = house.ingested(1)
    waiting = threading.Event()
    with house.engine.connect() as blocker:
        blocker.execute(text("SELECT FROM transcription_jobs FOR UPDATE"))
        asking = threading.Thread(target=request_job, args=(house.engine, image.id, "newspaper", 3, OPERATOR))
        asking.start()
        canceling = threading.Thread(target=lambda: (waiting.set(), cancel(house, batch)))
        until_blocked(house, 1)
        canceling.start()
        waiting.wait(30)
        until_blocked(house, 2)
        blocker.rollback()
    asking.join(30)
    canceling.join(30)
    assert house.rows("SELECT status FROM transcription_jobs ORDER BY created_at") == [("superseded",), ("canceled",)]


def until_blocked(house: House, sessions: int) -> None:
    """Wait until so many sessions of the test's database wait for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while house.value(waiting) < sessions:
        pass


def test_a_page_finished_meanwhile_is_canceled_with_its_job(house: House, engines: FakeEngines) -> None:
    """R27, R119: a segmentation that commits after the cancel is refused: no page, no job, no event."""
    work = Work(house, house.batch({"a.png": png()}, house.folder / "in"))
    work.validate()
    source = work.segmentation()
    (unit,) = source.claim(1)
    result = unit.task(*unit.arguments)
    cancel(house, work.batch.id)
    with pytest.raises(ScribeError):
        unit.finish(result)
    for table in ("annotation_pages", "transcription_jobs", "event_outbox", "item_images"):
        assert house.value(f"SELECT count(*) FROM {table}") == 0


def test_canceling_what_is_over(house: House) -> None:
    """R23: a canceled batch may be canceled again, to no effect; a completed one may not; one that is not there is named."""
    batch, _ = house.ingested(1)
    assert cancel(house, batch)
    before = house.everything()
    assert not cancel(house, batch)
    assert house.everything() == before
    other, _ = house.ingested(1)
    house.complete(house.claim())
    house.execute("UPDATE ingest_batches SET status = 'completed', finished_at = clock_timestamp() WHERE id = :id", id=other)
    for wrong, category in ((other, Category.FAILED_PRECONDITION), (UUID(int=1), Category.NOT_FOUND)):
        with pytest.raises(ScribeError) as caught:
            cancel(house, wrong)
        assert caught.value.category is category


def test_there_is_no_limit_to_a_batch(house: House) -> None:
    """R23: more rows than a statement may have parameters are named in one."""
    many = [uuid4() for _ in range(70_000)]
    assert house.rows(select(transcription_jobs).where(one_of(transcription_jobs.c.id, many))) == []


def test_the_same_files_again_are_a_new_batch(house: House, engines: FakeEngines) -> None:
    """R23: what was canceled is over; the same request afterwards starts anew and becomes drafts."""
    first = house.batch({"a.png": png()}, house.folder / "in")
    cancel(house, first.id)
    second = house.batch({"a.png": png()}, house.folder / "in")
    assert second.id != first.id
    assert Work(house, second).all().status == "completed"
