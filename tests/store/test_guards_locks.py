"""What locks are for: who waits for whom, in which order, and that what changed under a lock would be noticed all the same."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event, text, true

from scribe_pipeline.contexts import edit_context
from scribe_pipeline.database import DatabaseError, in_transaction, lock, upgrade
from scribe_pipeline.database.tables import (
    annotation_pages,
    ingest_batch_files,
    ingest_batches,
    item_images,
    items,
    storage_quota_usage,
    transcription_jobs,
)
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import settle_batch
from scribe_pipeline.ingest.claims import FileClaim, claim_file
from scribe_pipeline.jobs import cancel_job, claim_jobs, end_attempt, request_job
from tests.houses import House, png

# PostgreSQL's lock_not_available: somebody would have waited.
WAITED = "55P03"


@contextmanager
def held(house: House, statement: str) -> Iterator[None]:
    """Keep open, meanwhile, a transaction of somebody else that has run this statement."""
    with house.engine.connect() as busy:
        busy.execute(text(statement))
        yield
        busy.rollback()


@contextmanager
def sent(house: House) -> Iterator[list[str]]:
    """Collect the statements that are sent meanwhile."""
    statements: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        statements.append(statement)

    event.listen(house.engine, "before_cursor_execute", note)
    yield statements
    event.remove(house.engine, "before_cursor_execute", note)


@contextmanager
def changed_after(house: House, beginning: str, change: str) -> Iterator[None]:
    """Run a change right behind the first statement that begins so, in its transaction, as if its locks had held nobody off."""
    ran: list[str] = []

    def run(connection: Any, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith(beginning) and not ran:
            ran.append(statement)
            connection.execute(text(change))

    event.listen(house.engine, "after_cursor_execute", run)
    yield
    event.remove(house.engine, "after_cursor_execute", run)
    assert ran, "no statement begins so"


def waits(work: Callable[[], object]) -> None:
    """The work waits for a lock that somebody else holds."""
    with pytest.raises(DatabaseError) as caught:
        work()
    assert caught.value.sqlstate == WAITED


def test_rows_are_locked_in_one_order(house: House) -> None:
    """R26, R144: batch, file, item, image, job, page, whatever the order they were asked for."""
    wanted = (annotation_pages, transcription_jobs, items, item_images, ingest_batch_files, ingest_batches)
    with sent(house) as statements:
        in_transaction(house.engine, lambda connection: lock(connection, dict.fromkeys(wanted, true())))
    assert [re.findall(r"FROM (\w+)", statement)[0] for statement in statements] == [
        "ingest_batches", "ingest_batch_files", "items", "item_images", "transcription_jobs", "annotation_pages",
    ]  # fmt: skip


def test_the_counter_of_all_is_locked_first(house: House) -> None:
    """R63: before those of single workspaces, whose ids come before it in the alphabet."""
    rows = in_transaction(house.engine, lambda connection: lock(connection, {storage_quota_usage: true()}))
    assert [row.scope == "global" for row in rows[storage_quota_usage]] == [True, False]


def test_rows_of_a_table_are_locked_by_their_keys(house: House) -> None:
    """R144: two who want the same rows of a table do not wait in a circle, wherever the rows lie by now."""
    jobs = [house.job() for _ in range(3)]
    house.execute("UPDATE transcription_jobs SET error = 'moved' WHERE id = :id", id=jobs[0])
    wanted = {transcription_jobs: true()}
    locked = in_transaction(house.engine, lambda connection: lock(connection, wanted))[transcription_jobs]
    assert [row.id for row in locked] == jobs


def test_a_locked_row_is_nobody_elses(impatient: House) -> None:
    """R26: what a transaction has locked, others wait for."""
    impatient.job()
    wanted = {transcription_jobs: true()}
    with impatient.engine.begin() as connection:
        lock(connection, wanted)
        waits(lambda: impatient.execute("UPDATE transcription_jobs SET error = 'changed'"))


def test_the_end_of_an_attempt_locks_the_job_first(impatient: House) -> None:
    """R144: an attempt is touched only by who has its job; cancel takes them in the same order."""
    impatient.job()
    claim = impatient.claim()
    with held(impatient, "SELECT FROM transcription_jobs FOR UPDATE"), sent(impatient) as statements:
        waits(lambda: end_attempt(impatient.engine, claim, Category.TIMEOUT))
    assert not [statement for statement in statements if statement.startswith("UPDATE")]


@pytest.mark.parametrize("table", ["item_images", "transcription_jobs"])
def test_a_completion_takes_image_and_job_before_it_writes(impatient: House, table: str) -> None:
    """R144: no page is written by who has not locked all that comes before the page."""
    impatient.job()
    claim = impatient.claim()
    with held(impatient, f"SELECT FROM {table} FOR UPDATE"), sent(impatient) as statements:
        waits(lambda: impatient.complete(claim))
    assert not [statement for statement in statements if statement.startswith("UPDATE")]


def test_a_save_takes_the_image_before_the_page(impatient: House) -> None:
    """R144: a person's save keeps to the order too."""
    image = impatient.page()
    with held(impatient, "SELECT FROM item_images FOR UPDATE"):
        waits(lambda: impatient.save(image.id, 1))


def test_a_request_waits_for_the_batch(impatient: House) -> None:
    """R27: no job is made for an image while its batch is being canceled."""
    _, (image,) = impatient.ingested(1)
    with held(impatient, "SELECT FROM ingest_batches FOR UPDATE"):
        waits(lambda: request_job(impatient.engine, image.id, "newspaper", 3, Operator("test")))


def test_settling_takes_its_turn(impatient: House) -> None:
    """R119: whether a batch is over is asked only by who holds it, not while it is being canceled."""
    batch_id, _ = impatient.ingested(1)
    with held(impatient, "SELECT FROM ingest_batches FOR UPDATE"):
        waits(lambda: settle_batch(impatient.engine, batch_id, 99))


def test_a_file_claim_waits_for_nobody(impatient: House, tmp_path: Path) -> None:
    """R94: a file that another session holds is passed by, and who settles the batch keeps nobody from its files."""
    batch = impatient.batch({"a.png": png(), "b.png": png(colour="red")}, tmp_path)
    first = "SELECT FROM ingest_batch_files WHERE sequence = 1 FOR UPDATE"
    with held(impatient, first), held(impatient, "SELECT FROM ingest_batches FOR UPDATE"):
        claim = claim_file(impatient.engine, batch.id, 60, stored=False)
    assert isinstance(claim, FileClaim)
    assert claim.sequence == 2


def subscribe(house: House, workspace: str = "default") -> None:
    """A webhook of the workspace."""
    house.execute(
        """INSERT INTO webhook_subscriptions (id, workspace_id, target_url, signing_secret)
           SELECT gen_random_uuid(), id, 'https://example.org', repeat('s', 32) FROM workspaces WHERE name = :name""",
        name=workspace,
    )


def test_an_event_waits_for_a_webhook_that_is_being_removed(impatient: House) -> None:
    """R13: no delivery is written for a webhook that is gone; one whose secret changes just now is no reason to wait."""
    image = impatient.page()
    subscribe(impatient)
    with held(impatient, "DELETE FROM webhook_subscriptions"):
        waits(lambda: impatient.save(image.id, 1))
    with held(impatient, "UPDATE webhook_subscriptions SET signing_secret = repeat('t', 32)"):
        assert impatient.save(image.id, 1) == 2


def test_an_event_is_delivered_to_its_own_workspace(house: House) -> None:
    """R13: a webhook hears of its workspace and of no other."""
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'other')")
    subscribe(house, "other")
    house.save(house.page().id, 1)
    assert house.value("SELECT count(*) FROM webhook_deliveries") == 0


def test_migrations_run_one_after_the_other(impatient: House) -> None:
    """Who migrates waits for whoever does so already."""
    with held(impatient, "SELECT pg_advisory_xact_lock(7274501)"):
        waits(lambda: upgrade(impatient.engine))


CHANGED = {
    "claimed": "UPDATE transcription_jobs SET attempt_count = attempt_count + 1",
    "canceled": "UPDATE transcription_jobs SET status = 'canceled', finished_at = clock_timestamp()",
    "taken over": "UPDATE transcription_jobs SET lease_token = 'other'",
    "ended": """UPDATE transcription_jobs SET status = 'superseded', finished_at = clock_timestamp(),
                lease_owner = NULL, lease_token = NULL, lease_until = NULL""",
}
UNNOTICED: dict[str, tuple[str, Callable[[House], Callable[[], object]]]] = {
    "claim, claimed": ("claimed", lambda house: house.claim),
    "claim, canceled": ("canceled", lambda house: house.claim),
    "give up, taken over": ("taken over", lambda house: exhausted(house)),
    "retry, taken over": ("taken over", lambda house: ended(house, Category.TIMEOUT)),
    "fail, taken over": ("taken over", lambda house: ended(house, Category.AUTHENTICATION)),
    "complete, taken over": ("taken over", lambda house: completed(house)),
    "cancel, ended": ("ended", lambda house: canceled(house)),
}


def exhausted(house: House) -> Callable[[], object]:
    """The claim that gives up a job whose last worker vanished."""
    house.claim()
    house.execute("ALTER TABLE transcription_jobs DISABLE TRIGGER transcription_jobs_keep")
    house.execute("UPDATE transcription_jobs SET max_attempts = 1")
    house.expire_lease()
    return lambda: claim_jobs(house.engine, 60)


def ended(house: House, category: Category) -> Callable[[], object]:
    """The end of a claimed job's attempt."""
    claim = house.claim()
    return lambda: end_attempt(house.engine, claim, category)


def completed(house: House) -> Callable[[], object]:
    """The completion of a claimed job."""
    claim = house.claim()
    return lambda: house.complete(claim)


def canceled(house: House) -> Callable[[], object]:
    """The cancel of a claimed job."""
    job_id = house.claim().job_id
    return lambda: cancel_job(house.engine, job_id, Operator("test"))


@pytest.mark.parametrize("case", UNNOTICED)
def test_each_write_asks_again(house: House, case: str) -> None:
    """R97: a write names what it expects of the row, behind a lock too, and one that meets no row undoes all others."""
    house.job()
    change, prepare = UNNOTICED[case]
    work = prepare(house)
    before = house.rows("SELECT * FROM transcription_jobs") + house.rows("SELECT * FROM transcription_job_attempts")
    with changed_after(house, "SELECT transcription_jobs.id", CHANGED[change]), pytest.raises(ScribeError) as caught:
        work()
    assert caught.value.category is Category.LEASE_LOST
    assert before == house.rows("SELECT * FROM transcription_jobs") + house.rows("SELECT * FROM transcription_job_attempts")


@pytest.mark.parametrize("change", ["attempt_count = attempt_count + 1", "status = 'canceled'"])
def test_each_claim_of_a_file_asks_again(house: House, tmp_path: Path, change: str) -> None:
    """R97: a batch file is claimed as it was seen, or not at all."""
    batch = house.batch({"a.png": png()}, tmp_path)
    statement = f"UPDATE ingest_batch_files SET {change}"
    with changed_after(house, "SELECT ingest_batch_files.batch_id", statement), pytest.raises(ScribeError) as caught:
        claim_file(house.engine, batch.id, 60, stored=False)
    assert caught.value.category is Category.LEASE_LOST
    assert house.rows("SELECT status, attempt_count FROM ingest_batch_files") == [("pending", 0)]


def test_an_edit_of_a_context_has_its_row_to_itself(impatient: House) -> None:
    """R99: what an edit compares with, and tells of in the audit, nobody else is changing."""
    context_id = impatient.value("SELECT id FROM contexts WHERE name = 'letter'")
    with held(impatient, f"SELECT FROM contexts WHERE id = '{context_id}' FOR NO KEY UPDATE"):
        waits(lambda: edit_context(impatient.engine, "letter", {}, Operator("test")))
