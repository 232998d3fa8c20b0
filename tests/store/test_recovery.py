"""What recovers by itself: expired leases, delayed retries, a provider or a database that was away. Nobody edits a row."""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from sqlalchemy import Connection, text

from scribe_pipeline.database import DatabaseError, connect, in_transaction
from scribe_pipeline.engines import Ticket
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.jobs import TranscriptionSource, drain, end_attempt
from tests.houses import FakeEngines, House, InlinePool
from tests.proofs import wait_until


def source(house: House, pages: int | None = None) -> TranscriptionSource:
    """All jobs of the house."""
    return TranscriptionSource(house.engine, house.store_url, 60, lambda _: None, pages=pages)


def work(house: House, sources: Sequence[Any] = (), pool: InlinePool | None = None, seconds: float = 60, **options: Any) -> None:
    """Drain the queue."""
    drain(sources or [source(house)], pool or InlinePool(), 60, seconds, sleep=lambda _: None, **options)


def test_an_expired_lease_is_taken_over(house: House, engines: FakeEngines) -> None:
    """R6, R37: a job whose worker vanished is worked on by whoever looks next, without an operator."""
    house.job()
    house.claim()
    house.expire_lease()
    work(house)
    assert house.value("SELECT status FROM transcription_jobs") == "completed"
    outcomes = house.rows("SELECT outcome FROM transcription_job_attempts ORDER BY attempt_number")
    assert [row.outcome for row in outcomes] == ["lease_expired", "completed"]


def test_a_restored_provider_needs_no_hand(house: House, engines: FakeEngines) -> None:
    """R30: while the provider is away jobs wait and retry; once it is back all drain, and no row was touched by hand."""
    for _ in range(4):
        house.job()
    engines.answer = lambda _: ScribeError(Category.TRANSPORT, "no route")
    work(house)
    assert house.rows("SELECT status, count(*) FROM transcription_jobs GROUP BY status") == [("pending", 4)]
    engines.answer = lambda _: "text"
    work(house)
    assert house.rows("SELECT status, count(*) FROM transcription_jobs GROUP BY status") == [("pending", 4)], "not due yet"
    house.execute("UPDATE transcription_jobs SET retry_after = clock_timestamp()")  # the time that passes meanwhile
    work(house)
    assert house.rows("SELECT status, count(*) FROM transcription_jobs GROUP BY status") == [("completed", 4)]


def test_jobs_exhausted_by_vanished_workers_fail(house: House, engines: FakeEngines) -> None:
    """R20, R37: a job whose workers vanish again and again fails with its category when the next worker comes by."""
    house.job(max_attempts=2)
    for _ in range(2):
        house.claim()
        house.expire_lease()
    work(house)
    assert house.rows("SELECT status, error_category FROM transcription_jobs") == [("failed", "attempts_exhausted")]
    assert house.rows("SELECT outcome FROM transcription_job_attempts") == [("lease_expired",)] * 2
    assert engines.crops == []


def test_a_limit_of_pages(house: House, engines: FakeEngines) -> None:
    """R37: a worker that was asked for two pages takes two, and leaves the rest to others."""
    for _ in range(3):
        house.job()
    limited = source(house, pages=2)
    work(house, [limited])
    assert house.rows("SELECT status, count(*) FROM transcription_jobs GROUP BY status ORDER BY 1") == [
        ("completed", 2), ("pending", 1)
    ]  # fmt: skip
    assert limited.pages_left == 0


class BusyPool(InlinePool):
    """Engines that never end."""

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Ticket:
        """Take the task."""
        self.idle -= 1
        return Ticket(Future(), 0)


def test_a_worker_that_is_told_to_stop_gives_back(house: House, engines: FakeEngines) -> None:
    """R37: what a stopped worker holds is closed as retryable, due again in five seconds, and nothing is committed."""
    for _ in range(2):
        house.job()
    looks = iter([False, True])
    work(house, pool=BusyPool(), stopped=lambda: next(looks))
    assert house.rows("SELECT status, attempt_count FROM transcription_jobs") == [("pending", 1)] * 2
    assert house.rows("SELECT outcome, error_category FROM transcription_job_attempts") == [("retryable_failed", "interrupted")] * 2
    assert house.value("SELECT max(revision) FROM annotation_pages") == 1


class Outage:
    """A source whose database goes away for a while."""

    def __init__(self, inner: TranscriptionSource, monkeypatch: pytest.MonkeyPatch, calls: set[int]) -> None:
        self.calls = 0
        self._inner = inner

        def sometimes(engine: Any, work: Any) -> Any:
            self.calls += 1
            if self.calls in calls:
                raise DatabaseError(Category.UNAVAILABLE, "the database does not answer")
            return real(engine, work)

        from scribe_pipeline.database import in_transaction as real

        for room in ("queue", "completion", "transcription"):
            monkeypatch.setattr(f"scribe_pipeline.jobs.{room}.in_transaction", sometimes)

    def claim(self, limit: int) -> Sequence[Any]:
        """Claim as the real one does."""
        return self._inner.claim(limit)


def test_a_database_that_is_away_for_a_moment_costs_no_work(
    house: House, engines: FakeEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R30, R37: wherever a worker meets an outage, it waits and goes on; what was read is committed once it is over."""
    house.job()
    steady = Outage(source(house), monkeypatch, set())
    work(house, [steady])
    crops, transactions = len(engines.crops), steady.calls
    for call in range(1, transactions + 1):
        house.job()
        work(house, [Outage(source(house), monkeypatch, {call})])
        house.expire_lease()  # an outage after the claim's commit leaves the claim to its lease, or to a retry
        house.execute("UPDATE transcription_jobs SET retry_after = NULL")
        work(house, [Outage(source(house), monkeypatch, set())])
        assert house.value("SELECT count(*) FROM transcription_jobs WHERE status <> 'completed'") == 0, f"transaction {call}"
    assert len(engines.crops) <= crops * (transactions + 1), "no page was read twice"


def test_a_database_that_stays_away_ends_the_run(house: House, engines: FakeEngines, monkeypatch: pytest.MonkeyPatch) -> None:
    """R37: after an outage as long as a lease the run ends with one sentence, as nothing it holds is its own any more."""
    house.job()
    seconds = iter(range(0, 100_000, 10))
    away = Outage(source(house), monkeypatch, set(range(3, 10_000)))
    with pytest.raises(DatabaseError, match="does not answer"):
        work(house, [away], seconds=1e9, clock=lambda: float(next(seconds)))


def test_a_database_that_stays_away_ends_a_busy_run(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """R37: so it does when no place is idle and there is nothing new to report."""
    house.job()
    away = Outage(source(house), monkeypatch, set(range(6, 10_000)))
    seconds = iter(range(10_000))
    with pytest.raises(DatabaseError, match="does not answer"):
        drain([away], BusyPool(1), 8, 1e9, clock=lambda: float(next(seconds)), sleep=lambda _: None)
    assert house.value("SELECT status FROM transcription_jobs") == "running", "it waits for its lease to run out"


def test_a_store_that_is_not_there_blames_no_page(house: House) -> None:
    """R30: a worker that was given another folder, or one that is not mounted, says so and fails no page for it."""
    for _ in range(2):
        house.job()
    house.store_url = str(house.folder / "elsewhere")
    with pytest.raises(ScribeError, match="SCRIBE_BLOB_URL"):
        work(house)
    assert house.rows("SELECT status, attempt_count FROM transcription_jobs") == [("pending", 1)] * 2


def test_a_missing_engine_costs_no_other_job(house: House, engines: FakeEngines, monkeypatch: pytest.MonkeyPatch) -> None:
    """R28: the jobs beside one whose engine is not there are finished; then the run says what is missing."""
    house.execute("UPDATE contexts SET transcription_model = 'missing' WHERE name = 'manuscript'")
    from scribe_pipeline.engines import check_transcriber

    def check(provider: str, model: str) -> None:
        if model == "missing":
            raise ScribeError(Category.UNAVAILABLE, "the model is not installed")
        check_transcriber(provider, model)

    monkeypatch.setattr("scribe_pipeline.jobs.transcription.check_transcriber", check)
    jobs = [house.job(context=name) for name in ("letter", "manuscript", "letter")]
    with pytest.raises(ScribeError, match="not installed"):
        work(house, pool=InlinePool(3))
    statuses = dict(house.rows("SELECT id, status FROM transcription_jobs"))
    assert [statuses[job] for job in jobs] == ["completed", "pending", "completed"]


def test_a_missing_engine_stops_the_run_and_blames_no_page(
    house: House, engines: FakeEngines, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R28: what the house lacks is told at once; all that was claimed is given back."""

    def missing(provider: str) -> str:
        raise ScribeError(Category.UNAVAILABLE, "the engine is not installed")

    monkeypatch.setattr("scribe_pipeline.jobs.transcription.transcriber_version", missing)
    for _ in range(2):
        house.job()
    with pytest.raises(ScribeError, match="not installed"):
        work(house)
    assert house.rows("SELECT status, attempt_count FROM transcription_jobs") == [("pending", 1)] * 2


def test_a_token_is_told_nowhere(house: House, engines: FakeEngines, caplog: pytest.LogCaptureFixture) -> None:
    """R39, R41: through claim, renewal, expiry, failure and completion no log and no exception says a token; rows store it."""
    caplog.set_level(logging.DEBUG)
    house.job(max_attempts=9)
    said: list[str] = []
    late = house.claim(1)
    house.expire_lease()
    work(house)
    for write in (house.complete, lambda claim: end_attempt(house.engine, claim, Category.UPSTREAM)):
        with pytest.raises(ScribeError) as caught:
            write(late)
        said.append(f"{caught.value!r} {caught.value} {late!r} {late.lease!r} {vars(late)}")
    house.job(max_attempts=1)
    engines.answer = lambda _: RuntimeError("boom")
    work(house)
    tokens = [row.lease_token for row in house.rows("SELECT lease_token FROM transcription_job_attempts")]
    assert len(set(tokens)) == 3 and all(tokens)
    assert "completed" in {row.status for row in house.rows("SELECT status FROM transcription_jobs")}
    for token in tokens:
        assert token not in caplog.text + " ".join(said)
    with pytest.raises(DatabaseError) as refused:
        house.execute("UPDATE transcription_job_attempts SET lease_token = NULL, outcome = 'failed'")
    assert refused.value.category is Category.FAILED_PRECONDITION


def test_who_hangs_in_a_transaction_frees_its_rows(
    house: House, database_url: str, monkeypatch: pytest.MonkeyPatch, engines: FakeEngines
) -> None:
    """R37: a process that stops inside a transaction is put out after a while; its job goes on with another worker."""
    monkeypatch.setattr("scribe_pipeline.database.engine._MAX_SILENCE_SECONDS", 1)
    job = house.job()
    hung = connect(database_url)
    with pytest.raises(DatabaseError) as caught:
        in_transaction(hung, lambda connection: hang(house, connection, job))
    assert caught.value.category is Category.UNAVAILABLE
    work(house)
    assert house.value("SELECT status FROM transcription_jobs") == "completed"
    hung.dispose()


def hang(house: House, connection: Connection, job: object) -> None:
    """Hold a job's row until the server has had enough."""
    connection.execute(text("SELECT FROM transcription_jobs WHERE id = :id FOR UPDATE"), {"id": job})
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'idle in transaction'"
    wait_until(lambda: house.value(sessions) == 0, "the end of the session")
    connection.execute(text("SELECT 1"))
