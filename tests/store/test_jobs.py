"""The queue: claims, leases, fences, completion. What no worker, however late, may be able to do."""

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr
from sqlalchemy import Connection, text

from scribe_pipeline.contexts import find_context
from scribe_pipeline.database import DatabaseError, Lease, in_transaction
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.jobs import (
    JobClaim,
    cancel_job,
    claim_jobs,
    create_job,
    end_attempt,
    record_preflight,
    record_progress,
    renew_claim,
    request_job,
)
from scribe_pipeline.pages import load_head, plain_text
from tests.houses import House, stopped_after

LATE_WRITES: dict[str, Callable[[House, JobClaim], object]] = {
    "progress": lambda house, claim: record_progress(house.engine, claim, 1, 0),
    "preflight": lambda house, claim: record_preflight(house.engine, claim, {"segments": 9}, 9),
    "defer": lambda house, claim: end_attempt(house.engine, claim, Category.TIMEOUT),
    "fail": lambda house, claim: end_attempt(house.engine, claim, Category.AUTHENTICATION),
    "complete": lambda house, claim: house.complete(claim),
}


@pytest.mark.parametrize("write", LATE_WRITES)
def test_an_old_token_writes_nothing(house: House, write: str) -> None:
    """R7, R8, R10: with the old token there is no progress, no failing or deferring, no page; nothing changes at all."""
    house.job()
    late = house.claim()
    house.expire_lease()
    house.claim()
    before = house.everything()
    with pytest.raises(ScribeError) as caught:
        LATE_WRITES[write](house, late)
    assert caught.value.category is Category.LEASE_LOST
    assert house.everything() == before


@pytest.mark.parametrize("write", LATE_WRITES)
@pytest.mark.parametrize(
    "change",
    [
        {"job_id": UUID(int=7)},
        {"attempt_number": 2},
        {"input_revision": 2},
        {"lease": Lease("someone", SecretStr("another token"), 60)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_part_of_the_fence_counts(house: House, write: str, change: dict[str, Any]) -> None:
    """R97: job, attempt, input revision and token must each be the right one, for every write."""
    house.job()
    claim = house.claim()
    forged = JobClaim(**(vars(claim) | change))
    before = house.everything()
    assert not renew_claim(house.engine, forged)
    with pytest.raises(ScribeError):
        LATE_WRITES[write](house, forged)
    assert house.everything() == before


def test_a_lease_that_ran_out_but_was_not_taken_may_still_commit(house: House) -> None:
    """R10: it is the reclaim that kills a token, not the clock."""
    house.job()
    claim = house.claim()
    house.expire_lease()
    assert house.complete(claim) == 2


def test_completion_commits_everything(house: House) -> None:
    """R121, R13: page, index, baseline, attempt, job and one event, with the result revision of the page."""
    image = house.page()
    job = house.job(image)
    assert house.complete(house.claim(), "Dear Sir") == 2
    row = house.rows("SELECT * FROM transcription_jobs WHERE id = :id", id=job)[0]
    assert (row.status, row.result_revision, row.total_segments, row.completed_segments, row.failed_segments, row.passed) == (
        "completed", 2, 3, 3, 0, True,
    )  # fmt: skip
    attempt = house.rows("SELECT outcome, result_revision, finished_at FROM transcription_job_attempts")[0]
    assert attempt[:2] == ("completed", 2)
    with house.engine.connect() as connection:
        head = load_head(connection, image.id)
    assert head is not None
    assert head.revision == 2
    assert plain_text(head.payload) == "Dear Sir\n" * 3
    assert house.value("SELECT count(*) FROM annotations WHERE search @@ plainto_tsquery('simple', 'sir')") == 3
    baseline = house.rows("SELECT r.* FROM ocr_runs r JOIN current_ocr_runs c ON c.ocr_run_id = r.id")[0]
    assert (baseline.original_text, baseline.job_id) == ("Dear Sir\n" * 3, job)
    body = house.value("SELECT body::jsonb FROM event_outbox WHERE job_id = :id", id=job)
    assert (body["type"], body["data"]["revision"], body["data"]["completedSegments"]) == (
        "dev.scribe.transcription.completed",
        2,
        3,
    )


COMPLETION_WRITES = (
    "UPDATE annotation_pages", "INSERT INTO annotation_page_revisions", "DELETE FROM annotations", "INSERT INTO annotations",
    "INSERT INTO current_ocr_runs", "INSERT INTO ocr_runs", "UPDATE transcription_job_attempts", "UPDATE transcription_jobs",
    "INSERT INTO event_outbox", "INSERT INTO webhook_deliveries",
)  # fmt: skip


@pytest.mark.parametrize("statement", COMPLETION_WRITES)
def test_completion_is_all_or_nothing(house: House, statement: str) -> None:
    """R13, R121: a failure right after any one of its writes undoes them all, and the job can still be completed."""
    house.subscribe()
    house.job()
    claim = house.claim()
    before = house.everything()
    with stopped_after(house.engine, statement):
        house.complete(claim)
    assert house.everything() == before
    assert house.complete(claim) == 2


def test_completion_on_a_changed_page_writes_nothing(house: House) -> None:
    """R13: the page's compare-and-swap decides over everything else."""
    image = house.page()
    house.job(image)
    claim = house.claim()
    assert house.save(image.id, 1) == 2
    before = house.everything()
    with pytest.raises(ScribeError) as caught:
        house.complete(claim)
    assert caught.value.category is Category.PAGE_CHANGED
    assert house.everything() == before


def test_the_same_request_is_the_same_job(house: House) -> None:
    """R94: asking again for what is active gives the active job."""
    image = house.page()
    assert house.job(image) == house.job(image)
    assert house.value("SELECT count(*) FROM transcription_jobs") == 1


def test_no_job_without_a_page(house: House) -> None:
    """R3: there is nothing to transcribe before an image has its canonical page."""
    image = house.image()
    with pytest.raises(ScribeError) as caught:
        house.job(image)
    assert caught.value.category is Category.FAILED_PRECONDITION


def test_no_job_for_another_workspaces_image(house: House) -> None:
    """R3: an image of another workspace is as good as none."""
    image = house.page()
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'other')")
    other = house.value("SELECT id FROM workspaces WHERE name = 'other'")
    with pytest.raises(ScribeError), house.engine.begin() as connection:
        create_job(connection, replace(image, workspace_id=other), find_context(connection, other), 3)


@pytest.mark.parametrize(("attempt", "seconds"), [(1, 20), (2, 40), (3, 80), (4, 160), (5, 300), (6, 300)])
def test_retries_wait_longer_each_time(house: House, attempt: int, seconds: int) -> None:
    """R14: a failure that may pass sends the job back, 2^n times ten seconds later, at most five minutes."""
    house.job(max_attempts=9)
    for _ in range(attempt):
        house.execute("UPDATE transcription_jobs SET retry_after = NULL")
        end_attempt(house.engine, house.claim(), Category.UPSTREAM)
    wait = house.value("SELECT extract(epoch FROM retry_after - updated_at) FROM transcription_jobs")
    assert abs(float(wait) - seconds) < 1
    assert claim_jobs(house.engine, 60) == []


def test_permanent_failure_ends_the_job(house: House) -> None:
    """R19: a failure that cannot pass ends the job at once, with the closed list's words and one event."""
    house.job()
    end_attempt(house.engine, house.claim(), Category.AUTHENTICATION)
    row = house.rows("SELECT status, error, error_category, retry_after FROM transcription_jobs")[0]
    assert row == ("failed", "transcription provider request failed", "authentication", None)
    assert house.value("SELECT outcome FROM transcription_job_attempts") == "failed"
    assert house.value("SELECT count(*) FROM event_outbox WHERE event_type LIKE '%failed'") == 1


def test_a_deadlock_is_tried_again(house: House) -> None:
    """A transaction that loses a deadlock runs again as a whole."""
    first, second = house.job(), house.job()
    meet = threading.Barrier(2, timeout=10)
    tries: list[int] = []

    def cross(one: object, two: object) -> None:
        seen = []

        def work(connection: Connection) -> None:
            seen.append(1)
            connection.execute(text("UPDATE transcription_jobs SET total_segments = 1 WHERE id = :id"), {"id": one})
            if len(seen) == 1:
                meet.wait()
            connection.execute(text("UPDATE transcription_jobs SET total_segments = 1 WHERE id = :id"), {"id": two})

        in_transaction(house.engine, work)
        tries.append(len(seen))

    threads = [threading.Thread(target=cross, args=pair) for pair in ((first, second), (second, first))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # who tries again may be back before the other has got his lock, and meet him once more
    assert len(tries) == 2 and max(tries) > 1


def test_database_errors_tell_no_token(house: House) -> None:
    """The driver's words print the failing row; ours do not."""
    house.job()
    claim = house.claim()
    token = claim.lease.token.get_secret_value()
    with pytest.raises(DatabaseError) as caught:
        house.execute("UPDATE transcription_jobs SET attempt_count = 99")
    shown = f"{caught.value!r} {caught.value} {caught.value.__cause__} {claim!r}"
    assert token not in shown
    assert caught.value.constraint == "transcription_jobs_attempts"


@pytest.mark.parametrize("category", [Category.INTERRUPTED, Category.CANCELED])
def test_what_was_stopped_from_outside_waits_five_seconds(house: House, category: Category) -> None:
    """R14: an attempt that was interrupted is closed as retryable, is counted, and the job is due again in five seconds."""
    house.job()
    end_attempt(house.engine, house.claim(), category)
    row = house.rows("SELECT status, attempt_count, extract(epoch FROM retry_after - updated_at) FROM transcription_jobs")[0]
    assert row[:2] == ("pending", 1)
    assert abs(float(row[2]) - 5) < 1
    assert house.value("SELECT outcome FROM transcription_job_attempts") == "retryable_failed"


def test_the_last_retryable_failure_ends_the_job(house: House) -> None:
    """R20: with its attempts used up, a job fails with the category of the last of them."""
    house.job(max_attempts=2)
    for category in (Category.TIMEOUT, Category.RATE_LIMITED):
        house.execute("UPDATE transcription_jobs SET retry_after = NULL")
        end_attempt(house.engine, house.claim(), category)
    assert house.rows("SELECT status, error_category, retry_after FROM transcription_jobs") == [("failed", "rate_limited", None)]
    outcomes = house.rows("SELECT outcome FROM transcription_job_attempts ORDER BY attempt_number")
    assert [row[0] for row in outcomes] == ["retryable_failed", "failed"]


def test_every_outcome_is_reached(house: House) -> None:
    """R11: an attempt ends in one of six outcomes, each of which happens; the schema takes no other."""
    ends: dict[str, Callable[[JobClaim], object]] = {
        "completed": house.complete,
        "retryable_failed": lambda claim: end_attempt(house.engine, claim, Category.UPSTREAM),
        "failed": lambda claim: end_attempt(house.engine, claim, Category.AUTHENTICATION),
        "canceled": lambda claim: cancel_job(house.engine, claim.job_id, Operator("test")),
        "superseded": lambda claim: request_job(house.engine, claim.item_image_id, "newspaper", 3, Operator("test")),
        "lease_expired": lambda claim: house.expire_lease() or claim_jobs(house.engine, 60, limit=9),
    }
    for outcome, end in ends.items():
        job = house.job()
        (claim,) = [claim for claim in claim_jobs(house.engine, 60, limit=9) if claim.job_id == job]
        assert house.value("SELECT outcome FROM transcription_job_attempts WHERE job_id = :id", id=job) == "running"
        end(claim)
        told = house.value("SELECT outcome FROM transcription_job_attempts WHERE job_id = :id AND attempt_number = 1", id=job)
        assert told == outcome
    with pytest.raises(DatabaseError) as caught:
        house.execute(
            "UPDATE transcription_job_attempts SET outcome = 'lost', finished_at = clock_timestamp() WHERE outcome = 'running'"
        )
    assert caught.value.constraint == "transcription_job_attempts_outcome"


def test_a_commit_whose_answer_was_lost_is_not_done_twice(house: House) -> None:
    """R10, R94: the very claim that has committed gets the same revision again, and nothing is written."""
    house.job()
    claim = house.claim()
    assert house.complete(claim) == 2
    before = house.everything()
    assert house.complete(claim, "something else") == 2
    assert house.everything() == before


@pytest.mark.parametrize("category", [category for category in Category if category.stored])
def test_every_category_can_end_an_attempt(house: House, category: Category) -> None:
    """R95: whatever an engine may say, the job and its attempt can be closed with it."""
    house.job(max_attempts=1)
    end_attempt(house.engine, house.claim(), category)
    assert house.rows("SELECT status, error_category FROM transcription_jobs") == [("failed", category.value)]
