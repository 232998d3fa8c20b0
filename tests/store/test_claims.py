"""Claims: who gets which job, in whose turn, by what lease, and what a claim leaves behind."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text

from scribe_pipeline.database import DatabaseError, Lease
from scribe_pipeline.jobs import claim_jobs, record_preflight, record_progress, renew_claim
from tests.houses import House


def test_claims_leave_attempt_rows(house: House) -> None:
    """R4: after n claims there are n attempts, numbered 1 to n, each with snapshot, revision, owner, token and start."""
    job = house.job(max_attempts=5)
    for _ in range(4):
        house.claim()
        house.expire_lease()
    rows = house.rows("SELECT * FROM transcription_job_attempts WHERE job_id = :id ORDER BY attempt_number", id=job)
    assert [row.attempt_number for row in rows] == [1, 2, 3, 4]
    assert len({row.lease_token for row in rows}) == 4
    assert all(row.context_snapshot and row.input_revision == 1 and row.lease_owner and row.started_at for row in rows)


def test_attempt_freezes_the_jobs_snapshot(house: House) -> None:
    """R96: the attempt's snapshot is the job's, byte for byte, and so is its input revision."""
    house.job()
    house.claim()
    assert house.value(
        """SELECT a.context_snapshot = j.context_snapshot AND a.input_revision = j.input_revision
           FROM transcription_job_attempts a JOIN transcription_jobs j ON j.id = a.job_id"""
    )


def test_claim_and_attempt_stand_or_fall_together(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """R5: a token that was given before breaks the attempt's insert, and then the job is as it was."""
    house.job()
    first = house.claim()
    house.job()
    monkeypatch.setattr("scribe_pipeline.jobs.queue.new_lease", lambda seconds: Lease("someone", first.lease.token, seconds))
    before = house.everything()
    with pytest.raises(DatabaseError):
        claim_jobs(house.engine, 60)
    assert house.everything() == before


def test_no_attempt_without_the_jobs_change(house: House) -> None:
    """R5: if the job cannot be set running, there is no attempt row either."""
    house.job()
    house.execute("ALTER TABLE transcription_jobs ADD CONSTRAINT stop_it CHECK (status <> 'running')")
    with pytest.raises(DatabaseError):
        claim_jobs(house.engine, 60)
    assert house.value("SELECT count(*) FROM transcription_job_attempts") == 0
    assert house.value("SELECT status || attempt_count FROM transcription_jobs") == "pending0"


def test_reclaim_closes_the_lost_attempt_first(house: House) -> None:
    """R6: attempt 1 ends as lease_expired, not after attempt 2 began, and their tokens differ."""
    house.job()
    first = house.claim()
    house.expire_lease()
    second = house.claim()
    old, new = house.rows("SELECT * FROM transcription_job_attempts ORDER BY attempt_number")
    assert (old.outcome, new.outcome) == ("lease_expired", "running")
    assert old.finished_at <= new.started_at
    assert first.lease.token != second.lease.token
    assert (first.attempt_number, second.attempt_number) == (1, 2)


def test_a_live_lease_is_not_taken(house: House) -> None:
    """R1: while the lease lives, nobody else gets the job."""
    house.job()
    house.claim()
    assert claim_jobs(house.engine, 60) == []


def test_expired_lease_at_the_last_attempt_fails_the_job(house: House) -> None:
    """R6: a job whose last worker vanished fails with its category and one event; the claim goes on to the next job."""
    job, other = house.job(max_attempts=1), house.job()
    house.claim()
    house.expire_lease()
    assert house.claim().job_id == other
    row = house.rows("SELECT * FROM transcription_jobs WHERE id = :id", id=job)[0]
    assert (row.status, row.error_category) == ("failed", "attempts_exhausted")
    assert house.value("SELECT event_type FROM event_outbox WHERE job_id = :id", id=job) == "dev.scribe.transcription.failed"


def test_renewal_moves_the_deadline(house: House) -> None:
    """R1, R9: whoever holds the lease can renew it; nobody can whose lease has run out, or was taken over."""
    house.job()
    claim = house.claim(30)
    before = house.value("SELECT lease_until FROM transcription_jobs")
    assert renew_claim(house.engine, claim)
    assert house.value("SELECT lease_until FROM transcription_jobs") > before
    house.expire_lease()
    assert not renew_claim(house.engine, claim)
    house.claim()
    deadline = house.value("SELECT lease_until FROM transcription_jobs")
    assert not renew_claim(house.engine, claim)
    assert house.value("SELECT lease_until FROM transcription_jobs") == deadline


def test_an_edited_context_does_not_reach_a_job(house: House) -> None:
    """R2: the claim carries the context as it was when the job was made."""
    house.job()
    house.execute("UPDATE contexts SET transcription_model = 'another', system_prompt = 'other', temperature = 1")
    snapshot = house.claim().context_snapshot
    assert '"transcription_model":"PP-OCRv6_rec_small"' in snapshot
    assert '"system_prompt":null' in snapshot


def test_progress_is_reset_by_a_claim(house: House) -> None:
    """R95: progress belongs to an attempt."""
    house.job()
    claim = house.claim()
    record_preflight(house.engine, claim, {"segments": 3}, 3)
    record_progress(house.engine, claim, 1, 1)
    assert house.rows("SELECT total_segments, completed_segments, failed_segments FROM transcription_jobs") == [(3, 1, 1)]
    house.expire_lease()
    house.claim()
    assert house.rows("SELECT total_segments, completed_segments, failed_segments FROM transcription_jobs") == [(0, 0, 0)]


def test_many_claimers_one_winner_each(house: House) -> None:
    """R94: eight sessions that claim at once get eight different jobs, and no job twice."""
    jobs = {house.job() for _ in range(8)}
    with ThreadPoolExecutor(12) as pool:
        got = list(pool.map(lambda _: claim_jobs(house.engine, 60), range(12)))
    claims = [claim for batch in got for claim in batch]
    while more := claim_jobs(house.engine, 60):  # a claimer that meets only locked rows goes away with nothing
        claims += more
    assert len(claims) == 8
    assert {claim.job_id for claim in claims} == jobs


def test_a_claim_waits_for_nobody(impatient: House) -> None:
    """R94: a job whose row another session holds just now is passed by, not waited for."""
    first, second = impatient.job(), impatient.job()
    with impatient.engine.begin() as busy:
        busy.execute(text("SELECT FROM transcription_jobs WHERE id = :id FOR UPDATE"), {"id": first})
        assert impatient.claim().job_id == second


def test_workspaces_take_turns(house: House) -> None:
    """R94: however many jobs one workspace has waiting, another's first job is claimed within one round."""
    for name in ("second", "third"):
        house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), :name)", name=name)
    for _ in range(12):
        house.job()
    late = {house.job(house.page(workspace=name)) for name in ("second", "third")}
    first_round = {house.claim().job_id for _ in range(3)}
    assert late < first_round
    assert len({claim.job_id for claim in claim_jobs(house.engine, 60, limit=20)}) == 11


def test_a_batch_of_claims_is_shared_out(house: House) -> None:
    """R4, R94: several jobs are claimed at once, oldest first, from all workspaces, each with a token of its own."""
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'second')")
    crowd = [house.job() for _ in range(6)]
    few = [house.job(house.page(workspace="second")) for _ in range(2)]
    claims = claim_jobs(house.engine, 60, limit=4)
    assert {claim.job_id for claim in claims} == {*crowd[:2], *few}
    assert len({claim.lease.token.get_secret_value() for claim in claims}) == 4
    assert [claim.job_id for claim in claim_jobs(house.engine, 60, limit=9)] == crowd[2:]
    assert claim_jobs(house.engine, 60, limit=9) == []


def test_a_workspace_whose_jobs_are_just_being_taken_is_passed_by(house: House) -> None:
    """R94: a claimer that meets only locked rows in the workspace whose turn it is goes on to the others."""
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'second')")
    jobs = {name: house.job(house.page(workspace=name)) for name in ("default", "second")}
    for busy, free in (("default", "second"), ("second", "default")):
        with house.engine.begin() as other:
            other.execute(text("SELECT FROM transcription_jobs WHERE id = :id FOR UPDATE"), {"id": jobs[busy]})
            claim = house.claim()
            assert claim.job_id == jobs[free]
        house.complete(claim)
        jobs[free] = house.job(house.page(workspace=free))
