"""Attempts are evidence: whoever loses or forges it changes nothing of what the queue does."""

from uuid import UUID

import pytest
from sqlalchemy import text

from scribe_pipeline.errors import Category
from scribe_pipeline.jobs import claim_jobs, end_attempt
from tests.houses import House

CHANGES = {
    "nothing": "SELECT 1",
    "all rows removed": "DELETE FROM transcription_job_attempts",
    "rows of lost workers removed": "DELETE FROM transcription_job_attempts WHERE outcome = 'running'",
    "all completed": """UPDATE transcription_job_attempts
        SET outcome = 'completed', finished_at = clock_timestamp(), error_category = NULL, result_revision = 2""",
    "all failed": """UPDATE transcription_job_attempts
        SET outcome = 'failed', finished_at = clock_timestamp(), error_category = 'authentication'""",
    "all expired": """UPDATE transcription_job_attempts
        SET outcome = 'lease_expired', finished_at = clock_timestamp(), error_category = NULL""",
    "all running again": """UPDATE transcription_job_attempts
        SET outcome = 'running', finished_at = NULL, error_category = NULL, result_revision = NULL""",
    "of another worker and revision": "UPDATE transcription_job_attempts SET lease_token = md5(lease_token), input_revision = 7",
}


def queue_of_every_kind(house: House) -> dict[str, UUID]:
    """Jobs that are due for each reason there is, and others that are not."""
    jobs = {kind: house.job(max_attempts=2) for kind in ("live", "deferred", "retry due", "expired", "ended")}
    jobs["exhausted"] = house.job(max_attempts=1)
    claims = {claim.job_id: claim for claim in claim_jobs(house.engine, 600, len(jobs))}
    for kind in ("deferred", "retry due"):
        end_attempt(house.engine, claims[jobs[kind]], Category.TIMEOUT)
    end_attempt(house.engine, claims[jobs["ended"]], Category.AUTHENTICATION)
    jobs["fresh"] = house.job()
    for column, kinds in {"retry_after": ("retry due",), "lease_until": ("expired", "exhausted")}.items():
        for kind in kinds:
            changed = f"UPDATE transcription_jobs SET {column} = clock_timestamp() - interval '1 second' WHERE id = :id"
            assert house.execute(changed, id=jobs[kind]) == 1
    return jobs


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_attempts_decide_nothing(house: House, change: str) -> None:
    """R36: whatever becomes of attempt rows, the same jobs are claimed, each for the attempt that its own row counts to."""
    jobs = queue_of_every_kind(house)
    with house.engine.begin() as connection:
        connection.execute(text("SET LOCAL session_replication_role = replica"))  # no trigger
        connection.execute(text(change))
    claims = {claim.job_id: claim for claim in claim_jobs(house.engine, 600, 100)}
    attempts = {job_id: claim.attempt_number for job_id, claim in claims.items()}
    assert attempts == {jobs["fresh"]: 1, jobs["retry due"]: 2, jobs["expired"]: 2}
    failed = house.rows("SELECT id FROM transcription_jobs WHERE error_category = 'attempts_exhausted'")
    assert [row.id for row in failed] == [jobs["exhausted"]]
    assert house.complete(claims[jobs["expired"]]) == 2
    assert claim_jobs(house.engine, 600, 100) == []
    house.empty()  # the evidence is not in order any more
