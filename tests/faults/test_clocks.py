"""A worker whose clock is an hour off: leases, retries and times are the database's, so nothing that happens depends on it."""

import datetime
import sys
import time
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import uuid_utils.compat as uuid_utils

from scribe_pipeline.errors import Category
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import cancel_batch, seconds_until_due
from scribe_pipeline.ingest.claims import claim_file, end_file_attempt, renew_file, stage_object
from scribe_pipeline.jobs import TranscriptionSource, claim_jobs, drain, end_attempt, queue_health, renew_claim, request_job
from scribe_pipeline.storage import new_object_key
from tests.houses import FakeEngines, House, InlinePool, png
from tests.work import Work

OPERATOR = Operator("operator")
# Deadlines that a test may leave behind are no further ahead than this, and those that it has let run out no further back.
AHEAD, BACK = datetime.timedelta(seconds=100), datetime.timedelta(seconds=5)
BECAME = """SELECT job.status, job.error_category, string_agg(attempt.outcome, ' ' ORDER BY attempt_number)
    FROM transcription_jobs AS job JOIN transcription_job_attempts AS attempt ON job_id = id WHERE id = :job GROUP BY 1, 2"""
WAITS = """SELECT extract(epoch FROM retry_after - attempt.finished_at) AS wait
    FROM transcription_jobs AS job JOIN transcription_job_attempts AS attempt ON job_id = id WHERE retry_after IS NOT NULL"""
LEFT = "SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM transcription_jobs WHERE id = :id"
DEADLINES = {"lease_until", "retry_after", "due_at", "next_attempt_at"}


@pytest.fixture(params=[0, 3600, -3600], ids=["right", "ahead", "behind"], autouse=True)
def skew(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Put every clock that the product can ask in Python off by so many seconds, and the times in its ids with them."""
    seconds: int = request.param
    real_time, real_monotonic, real_id, real_datetime = time.time, time.monotonic, uuid_utils.uuid7, datetime.datetime

    class Skewed(real_datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:
            return real_datetime.fromtimestamp(real_time() + seconds, tz)

        @classmethod
        def utcnow(cls) -> datetime.datetime:
            return cls.now(datetime.UTC).replace(tzinfo=None)

    skewed = {
        real_time: lambda: real_time() + seconds,
        real_monotonic: lambda: real_monotonic() + seconds,
        real_id: lambda: real_id(nanoseconds=time.time_ns() + seconds * 10**9),
        real_datetime: Skewed,
    }
    product = [module for name, module in sys.modules.items() if name.startswith("scribe_pipeline")]
    for module in (time, datetime, uuid_utils, *product):
        for name, value in list(vars(module).items()):
            for clock, wrong in skewed.items():
                if value is clock:
                    monkeypatch.setattr(module, name, wrong)
    return seconds


def now(house: House) -> Any:
    """The database's time."""
    return house.value("SELECT clock_timestamp()")


def expire(house: House, *jobs: UUID) -> None:
    """Let the leases of these jobs run out."""
    house.execute(
        "UPDATE transcription_jobs SET lease_until = clock_timestamp() - interval '1 second' WHERE id = ANY (:jobs)",
        jobs=list(jobs),
    )


def wrong_times(house: House, began: Any) -> list[tuple[str, str, object]]:
    """Return the times in all tables that lie before `began` or after now, and deadlines that lie too far from them."""
    ended, wrong = now(house), []
    columns = house.rows(
        """SELECT table_name, column_name
           FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
           WHERE table_schema = 'public' AND table_type = 'BASE TABLE' AND data_type = 'timestamp with time zone'
             AND table_name NOT IN ('workspaces', 'contexts')"""
    )
    for table, column in columns:
        first, last = (began - BACK, ended + AHEAD) if column in DEADLINES else (began, ended)
        times = house.rows(f"SELECT {column} FROM {table} WHERE {column} NOT BETWEEN :first AND :last", first=first, last=last)
        wrong += [(table, column, row[0]) for row in times]
    times = house.rows("SELECT (body::jsonb ->> 'time')::timestamptz FROM event_outbox")
    return wrong + [("event_outbox", "body", row[0]) for row in times if not began <= row[0] <= ended]


def test_a_queue_is_worked_on_as_by_the_right_clock(house: House, engines: FakeEngines) -> None:
    """R1, R6, R9, R14, R37: a live lease is not taken, an expired one is at once, a retry is when it is due; times are right."""
    began = now(house)
    claims = {}
    for name in ("live", "expired", "last", "deferred", "retried"):
        job = house.job(max_attempts=1 if name == "last" else 3)
        claims[name] = house.claim()
        assert claims[name].job_id == job
    expire(house, claims["expired"].job_id, claims["last"].job_id)
    assert renew_claim(house.engine, claims["live"])
    assert not renew_claim(house.engine, claims["expired"])
    for name in ("retried", "deferred"):
        end_attempt(house.engine, claims[name], Category.TIMEOUT)
        if name == "retried":
            house.execute("UPDATE transcription_jobs SET retry_after = clock_timestamp() WHERE retry_after IS NOT NULL")
    jobs = {name: claim.job_id for name, claim in claims.items()} | {"pending": house.job()}
    source = TranscriptionSource(house.engine, house.store_url, 60, lambda _: None)
    drain([source], InlinePool(), 60, 60, clock=time.monotonic, sleep=time.sleep)

    became = {name: tuple(house.rows(BECAME, job=job)[0]) for name, job in jobs.items()}
    assert became == {
        "live": ("running", None, "running"),
        "expired": ("completed", None, "lease_expired completed"),
        "last": ("failed", "attempts_exhausted", "lease_expired"),
        "deferred": ("pending", None, "retryable_failed"),
        "retried": ("completed", None, "retryable_failed completed"),
        "pending": ("completed", None, "completed"),
    }
    assert [round(row.wait) for row in house.rows(WAITS)] == [20]
    assert 50 < house.value(LEFT, id=jobs["live"]) <= 60
    assert wrong_times(house, began) == []


def test_requests_and_health_go_by_the_databases_clock(house: House) -> None:
    """R29, R31, R94: a request is served by a job with a live lease and supersedes one whose lease has run out; ages are right."""
    began = now(house)
    live, stale = house.job(), house.job()
    claim_jobs(house.engine, 60, 2)
    expire(house, stale)
    with house.engine.connect() as connection:
        health = queue_health(connection, 0)
    assert (health.running, health.expired_leases) == (2, 1)
    made = {job: request_job(house.engine, house.image_of(job), "letter", 3, OPERATOR) for job in (live, stale)}
    assert (made[live].job_id, made[live].created) == (live, False)
    assert made[stale].superseded == stale
    assert wrong_times(house, began) == []


def test_files_go_by_the_databases_clock(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R1, R6, R9, R27: leases of files, waits until something is due, and the deadline of what a canceled batch leaves."""
    began = now(house)
    done = Work(house, house.batch({"done.png": png()}, tmp_path)).all()
    assert done.status == "completed"
    batch = house.batch({"a.png": png(colour="red"), "b.png": png(colour="blue")}, tmp_path)
    first, second = (claim_file(house.engine, batch.id, 60, stored=False) for _ in range(2))
    assert claim_file(house.engine, batch.id, 60, stored=False) is None
    assert 50 < due_in(house, batch.id) <= 60
    assert renew_file(house.engine, first)
    end_file_attempt(house.engine, second, Category.TIMEOUT, "it took too long")
    assert claim_file(house.engine, batch.id, 60, stored=False) is None
    assert 4 < due_in(house, batch.id) <= 5
    house.expire_lease("ingest_batch_files")
    assert not renew_file(house.engine, first)
    again = claim_file(house.engine, batch.id, 60, stored=False)
    assert (again.sequence, again.attempt_count) == (first.sequence, 2)
    stage_object(house.engine, again, new_object_key(again.content_sha256, "png"), 90)
    cancel_batch(house.engine, batch.id, OPERATOR)
    wait = "SELECT extract(epoch FROM next_attempt_at - clock_timestamp()) FROM resource_cleanup_outbox"
    assert 80 < house.value(wait) <= 90
    assert wrong_times(house, began) == []


def due_in(house: House, batch_id: UUID) -> float:
    """Return in how many seconds something of the batch is due."""
    with house.engine.connect() as connection:
        seconds = seconds_until_due(connection, batch_id)
    assert seconds is not None
    return seconds
