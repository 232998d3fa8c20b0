"""Conditions of single statements that no other test would miss: each test fails if one of them is left out."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr

from scribe_pipeline.contexts import find_context
from scribe_pipeline.database import Lease, in_transaction
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.jobs import JobClaim, cancel_job, claim_jobs, end_attempt, renew_claim
from scribe_pipeline.storage import Blob, hand_over_blobs
from scribe_pipeline.workspaces import workspace_id
from tests.houses import House
from tests.store.test_jobs import LATE_WRITES


def refused(work: Callable[[], object], category: Category) -> str:
    """Run what must be refused with this category, and return the words."""
    with pytest.raises(ScribeError) as caught:
        work()
    assert caught.value.category is category
    return caught.value.message


def statuses(house: House) -> list[str]:
    """The jobs' statuses, oldest first."""
    return [row.status for row in house.rows("SELECT status FROM transcription_jobs ORDER BY id")]


def other_workspace(house: House) -> None:
    """A second workspace."""
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'other')")


@pytest.mark.parametrize("write", LATE_WRITES)
def test_a_token_counts_only_while_the_job_runs(house: House, write: str) -> None:
    """R97: the fence asks for the status by itself, not because the schema has no token without it."""
    house.job()
    claim = house.claim()
    house.execute("ALTER TABLE transcription_jobs DROP CONSTRAINT transcription_jobs_lease")
    house.execute("UPDATE transcription_jobs SET status = 'pending'")
    before = house.everything()
    assert not renew_claim(house.engine, claim)
    refused(lambda: LATE_WRITES[write](house, claim), Category.LEASE_LOST)
    assert house.everything() == before
    house.execute("UPDATE transcription_jobs SET status = 'running'")


def test_what_is_not_due_is_not_taken(house: House) -> None:
    """R1, R14: of a batch, neither a job that is deferred, nor one that somebody holds, nor another batch's is taken."""
    batch_id, _ = house.ingested(2)
    (deferred,) = claim_jobs(house.engine, 60, 1, batch_id)
    end_attempt(house.engine, deferred, Category.TIMEOUT)
    assert len(claim_jobs(house.engine, 60, 1, batch_id)) == 1
    house.ingested(1)
    assert claim_jobs(house.engine, 60, 10, batch_id) == []


def test_a_workspace_with_nothing_due_takes_no_share(house: House) -> None:
    """R94: whose turn it is, is asked among those only that have something due."""
    other_workspace(house)
    house.job(house.page(workspace="other"))
    end_attempt(house.engine, house.claim(), Category.TIMEOUT)
    for _ in range(4):
        house.job()
    assert [len(claim_jobs(house.engine, 60, 2)) for _ in range(2)] == [2, 2]


def test_a_claim_closes_the_attempts_of_its_own_job_only(house: House) -> None:
    """R6: what another worker holds is left alone, by who claims and by who gives back."""
    house.job(), house.job()
    lost, kept = claim_jobs(house.engine, 60, 2)
    house.execute("UPDATE transcription_jobs SET lease_until = clock_timestamp() WHERE id = :id", id=lost.job_id)
    assert house.claim().job_id == lost.job_id
    assert house.value("SELECT outcome FROM transcription_job_attempts WHERE job_id = :id", id=kept.job_id) == "running"
    end_attempt(house.engine, kept, Category.TIMEOUT)
    assert house.value("SELECT count(*) FROM transcription_job_attempts WHERE outcome = 'running'") == 1


def test_an_attempt_closed_by_hand_stays_closed(house: House) -> None:
    """R36, R12: an attempt that was closed by hand is not closed again, and the job is claimed as if nothing had happened."""
    house.job()
    claim = house.claim()
    house.execute("UPDATE transcription_job_attempts SET outcome = 'canceled', finished_at = clock_timestamp()")
    before = house.everything()
    refused(lambda: end_attempt(house.engine, claim, Category.TIMEOUT), Category.LEASE_LOST)
    refused(lambda: house.complete(claim), Category.LEASE_LOST)
    assert house.everything() == before
    house.expire_lease()
    assert house.claim().attempt_number == 2


@pytest.mark.parametrize(
    "change",
    [
        {"job_id": UUID(int=1)},
        {"attempt_number": 2},
        {"input_revision": 2},
        {"lease": Lease("someone", SecretStr("another token"), 60)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_completion_is_answered_again(house: House, change: dict[str, Any]) -> None:
    """R97: who lost the answer to his commit gets it once more, and nobody else does; nothing is written twice."""
    house.job()
    claim = house.claim()
    assert house.complete(claim) == 2
    before = house.everything()
    assert house.complete(claim) == 2
    refused(lambda: house.complete(JobClaim(**(vars(claim) | change))), Category.LEASE_LOST)
    assert house.everything() == before


def test_the_first_baseline_stays(house: House) -> None:
    """R162: a second job's reading does not take the place of what the engines first said of an image."""
    image = house.page()
    first = house.job(image)
    house.complete(house.claim(), "first")
    house.job(image)
    assert house.complete(house.claim(), "second") == 3
    assert house.rows("SELECT job_id FROM ocr_runs") == [(first,)]


def test_a_page_is_written_alone(house: House) -> None:
    """R145: a save changes the page, index and metric of its own image, and only at the revision that was seen."""
    pages = [house.page(), house.page()]
    for page in pages:
        house.job(page)
        house.complete(house.claim())
    rest = "SELECT * FROM {} WHERE item_image_id = :id ORDER BY 1, 2"
    tables = ("annotation_pages", "annotations", "ocr_runs")
    before = [house.rows(rest.format(table), id=pages[1].id) for table in tables]
    assert house.save(pages[0].id, 2) == 3
    assert [house.rows(rest.format(table), id=pages[1].id) for table in tables] == before
    refused(lambda: house.save(pages[0].id, 2), Category.PAGE_CHANGED)


def test_only_the_identical_request_is_the_same_job(house: House) -> None:
    """R22, R31: another context, another revision or a dead worker's lease make a new job in the old one's place."""
    image = house.page()
    house.job(image)
    house.job(image, context="newspaper")
    assert statuses(house) == ["superseded", "pending"]
    house.claim()
    assert house.value("SELECT count(*) FROM transcription_jobs WHERE id = :id", id=house.job(image, context="newspaper")) == 1
    assert statuses(house) == ["superseded", "running"]
    house.expire_lease()
    house.job(image, context="newspaper")
    house.save(image.id, 1)
    house.job(image, context="newspaper")
    assert statuses(house) == ["superseded"] * 3 + ["pending"]
    assert house.value("SELECT outcome FROM transcription_job_attempts") == "superseded"


def test_a_job_that_has_ended_is_not_superseded(house: House) -> None:
    """R22, R95: only an active job makes room for another."""
    image = house.page()
    cancel_job(house.engine, house.job(image), Operator("test"))
    house.job(image)
    assert statuses(house) == ["canceled", "pending"]


def test_cancel_ends_one_job(house: House) -> None:
    """R24, R12: the job and the attempt that runs; neither what is closed already nor what another job does."""
    job = house.job()
    end_attempt(house.engine, house.claim(), Category.TIMEOUT)
    other = house.job()
    house.claim()
    house.execute("UPDATE transcription_jobs SET retry_after = NULL WHERE id = :id", id=job)
    house.claim()
    assert cancel_job(house.engine, job, Operator("test"))
    attempts = house.rows("SELECT job_id, outcome FROM transcription_job_attempts ORDER BY job_id, attempt_number")
    assert attempts == [(job, "retryable_failed"), (job, "canceled"), (other, "running")]


def test_cancel_is_for_active_jobs(house: House) -> None:
    """R95: what has been canceled is not canceled twice, and what has been completed not at all."""
    job = house.job()
    assert cancel_job(house.engine, job, Operator("test"))
    assert not cancel_job(house.engine, job, Operator("test"))
    completed = house.job()
    house.complete(house.claim())
    said = refused(lambda: cancel_job(house.engine, completed, Operator("test")), Category.FAILED_PRECONDITION)
    assert "only an active one" in said


def test_a_full_queue_takes_no_more(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """B3: the cap counts the active jobs of one workspace; what has ended, and what is another's, leaves room."""
    other_workspace(house)
    monkeypatch.setattr("scribe_pipeline.jobs.requests.MAX_ACTIVE_JOBS", 1)
    house.job(house.page(workspace="other"))
    cancel_job(house.engine, house.job(), Operator("test"))
    house.job()
    assert "as many as it may" in refused(house.job, Category.FAILED_PRECONDITION)


def test_another_workspaces_context_is_not_there(house: House) -> None:
    """R3: a context belongs to its workspace, or to all."""
    other_workspace(house)
    house.execute(
        """INSERT INTO contexts (id, workspace_id, name, segmentation_model, transcription_provider, transcription_model)
           SELECT gen_random_uuid(), id, 'private', 'kraken-blla', 'local', 'model' FROM workspaces WHERE name = 'other'"""
    )

    def find(workspace: str) -> object:
        return in_transaction(
            house.engine, lambda connection: find_context(connection, workspace_id(connection, workspace), "private")
        )

    assert find("other")
    refused(lambda: find("default"), Category.INVALID_ARGUMENT)


def test_an_object_is_handed_over_once(house: House) -> None:
    """R56, R77: asking for a removal again leaves the row with its count of attempts, and with no fewer bytes."""
    image = house.image()

    def hand_over(size: int) -> None:
        blob = Blob(image.workspace_id, image.object_key, size)
        in_transaction(house.engine, lambda connection: hand_over_blobs(connection, [blob]))

    hand_over(1)
    house.execute("UPDATE resource_cleanup_outbox SET attempt_count = 7")
    for size in (image.storage_bytes, 0):
        hand_over(size)
        assert house.rows("SELECT attempt_count, storage_bytes FROM resource_cleanup_outbox") == [(7, image.storage_bytes)]
    house.execute("DELETE FROM item_images")


def test_an_image_is_asked_for_by_its_own_workspace(house: House) -> None:
    """R3: naming another workspace's image makes no job, in either of them."""
    other_workspace(house)
    image = house.page()
    elsewhere = house.value("SELECT id FROM workspaces WHERE name = 'other'")
    refused(lambda: house.job(replace(image, workspace_id=elsewhere)), Category.FAILED_PRECONDITION)
    assert statuses(house) == []
