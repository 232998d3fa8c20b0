"""The queue: claims, renewals, progress and the ends of attempts. Each is one short transaction that depends on the fence.

Who may ask for a job, cancel or replace one is another matter: see `requests`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Engine, Row, Uuid, and_, func, insert, literal, select, text, update

from scribe_pipeline.database import RELEASED, Lease, after, held_by, in_transaction, new_lease, one_of, renew, taken_by
from scribe_pipeline.database.tables import transcription_job_attempts, transcription_jobs
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Event, EventType, record_events

jobs, attempts = transcription_jobs, transcription_job_attempts

# A retry after n attempts waits 2^n times ten seconds, five minutes at most; one that was stopped from outside, five seconds.
_RETRY_SECONDS, _MAX_RETRY_SECONDS, _STOPPED_SECONDS = 10, 300, 5
_STOPPED = (Category.INTERRUPTED, Category.CANCELED)

# What a job's error says: a closed list, so that no engine's or provider's words get into a row.
_MESSAGES: Mapping[Category, str] = {
    Category.PAGE_CHANGED: "canonical annotation page changed during transcription",
    Category.PAGE_UNAVAILABLE: "canonical annotation page is unavailable",
    Category.SNAPSHOT_INVALID: "transcription context snapshot is invalid",
    Category.TOO_MANY_SEGMENTS: "transcription job exceeds configured segment limit",
    Category.NO_TEXT: "transcription provider returned no text",
    Category.INTERRUPTED: "transcription attempt was interrupted",
    Category.ATTEMPTS_EXHAUSTED: "worker lease expired after maximum attempts",
    Category.UNCLASSIFIED: "transcription attempt failed",
    Category.UNREADABLE: "stored scan is not there",
    Category.DAMAGED: "stored scan cannot be decoded",
}
ACTIVE = ("pending", "running")
_NO_PROGRESS = {"total_segments": 0, "completed_segments": 0, "failed_segments": 0}
_PROVIDER_MESSAGE = "transcription provider request failed"

# Asked once a statement, so that an index can be searched by it.
NOW = select(func.clock_timestamp()).scalar_subquery()
# Steps from workspace to workspace by the index, however many jobs each has waiting, and no further than it is asked for.
_WORKSPACES_WITH_DUE_JOBS = text("""
    WITH RECURSIVE open AS (
        (SELECT workspace_id FROM transcription_jobs
         WHERE due_at IS NOT NULL AND workspace_id >= :low AND workspace_id < :high ORDER BY workspace_id LIMIT 1)
        UNION ALL
        SELECT (SELECT job.workspace_id FROM transcription_jobs AS job
                WHERE job.due_at IS NOT NULL AND job.workspace_id > open.workspace_id AND job.workspace_id < :high
                ORDER BY job.workspace_id LIMIT 1)
        FROM open WHERE open.workspace_id IS NOT NULL
    )
    SELECT workspace_id FROM open
    WHERE workspace_id IS NOT NULL AND (
        SELECT true FROM transcription_jobs AS job
        WHERE job.workspace_id = open.workspace_id AND job.due_at <= (SELECT clock_timestamp()) ORDER BY job.due_at LIMIT 1)
    LIMIT :wanted
""").columns(workspace_id=Uuid)
_SERVED_LAST = text("SELECT last_value FROM claim_turns")
_SERVE = text("SELECT setval('claim_turns', :place)")
# A workspace's place in the order of turns is as much of its id as a sequence can hold.
_PLACE_SHIFT = 65
_LOWEST, _HIGHEST, _ALL = UUID(int=0), UUID(int=2**128 - 1), 1_000_000


@dataclass(frozen=True)
class JobClaim:
    """A running job as its worker holds it. Every write must name all of the fence: job, attempt, token, input revision."""

    job_id: UUID
    workspace_id: UUID
    item_image_id: UUID
    attempt_number: int
    max_attempts: int
    input_revision: int
    context_snapshot: str
    lease: Lease

    @property
    def fence(self) -> ColumnElement[bool]:
        """True for the job's row while this claim holds it."""
        return and_(
            jobs.c.id == self.job_id,
            jobs.c.attempt_count == self.attempt_number,
            jobs.c.input_revision == self.input_revision,
            held_by(jobs, self.lease, "running"),
        )


def claim_jobs(engine: Engine, lease_seconds: float, limit: int = 1, batch_id: UUID | None = None) -> list[JobClaim]:
    """Take up to `limit` jobs that are due, of one batch or of all workspaces in turn.

    An empty list means that nothing is due, or that others are just taking it; fewer than `limit`: it is worth asking again.
    A job whose worker vanished has its attempt closed as `lease_expired` first; if that was its last, it fails.
    """
    while True:
        claims, failed = in_transaction(engine, lambda connection: _claim(connection, lease_seconds, limit, batch_id))
        if claims or not failed:
            return claims


def _claim(connection: Connection, lease_seconds: float, limit: int, batch_id: UUID | None) -> tuple[list[JobClaim], int]:
    """One look at the queue: what was claimed, and how many jobs were failed instead."""
    rows = _due_rows(connection, jobs.c.batch_id == batch_id, limit) if batch_id is not None else _shared_out(connection, limit)
    _close_lost_attempts(connection, rows)
    claims = []
    for row in rows:
        if row.attempt_count >= row.max_attempts:
            held = and_(jobs.c.id == row.id, jobs.c.status == "running", jobs.c.lease_token == row.lease_token)
            _fail_row(connection, row, held, Category.ATTEMPTS_EXHAUSTED)
        else:
            claims.append(_take(connection, row, new_lease(lease_seconds)))
    return claims, len(rows) - len(claims)


def _shared_out(connection: Connection, limit: int) -> list[Row[Any]]:
    """Return due rows of as many workspaces, beginning with the one after that which was served last."""
    served: int = connection.execute(_SERVED_LAST).scalar_one()
    start = UUID(int=min(_HIGHEST.int, (served + 1) << _PLACE_SHIFT))
    rows: list[Row[Any]] = []
    for wanted in (limit, _ALL):
        spaces = _workspaces(connection, start, _HIGHEST, wanted)
        if len(spaces) < wanted:
            spaces += _workspaces(connection, _LOWEST, start, wanted - len(spaces))
        for asked, workspace_id in enumerate(spaces):
            share = math.ceil((limit - len(rows)) / (len(spaces) - asked))
            rows += _due_rows(connection, jobs.c.workspace_id == workspace_id, share)
            if len(rows) == limit:
                break
        # where others are just taking all that these have, the rest is asked
        if rows or len(spaces) < wanted:
            break
    place = max(1, rows[-1].workspace_id.int >> _PLACE_SHIFT) if rows else served
    if place != served:
        connection.execute(_SERVE, {"place": place})
    return rows


def _workspaces(connection: Connection, low: UUID, high: UUID, wanted: int) -> list[UUID]:
    bounds = {"low": low, "high": high, "wanted": wanted}
    return list(connection.scalars(_WORKSPACES_WITH_DUE_JOBS, bounds))


def _due_rows(connection: Connection, among: ColumnElement[bool], limit: int) -> Sequence[Row[Any]]:
    return connection.execute(
        select(jobs)
        .where(among, jobs.c.due_at <= NOW)
        .order_by(jobs.c.due_at, jobs.c.id)
        .limit(limit)
        .with_for_update(skip_locked=True)
    ).all()


def _close_lost_attempts(connection: Connection, rows: Sequence[Row[Any]]) -> None:
    """Close what runs of these jobs. How many that are is not asked: attempts are evidence, the jobs' rows decide."""
    connection.execute(
        update(attempts)
        .where(one_of(attempts.c.job_id, [row.id for row in rows]), attempts.c.outcome == "running")
        .values(**closed("lease_expired"))
    )


def _take(connection: Connection, row: Row[Any], lease: Lease) -> JobClaim:
    number = row.attempt_count + 1
    changed = connection.execute(
        update(jobs)
        .where(jobs.c.id == row.id, jobs.c.attempt_count == row.attempt_count, jobs.c.status.in_(ACTIVE))
        .values(status="running", attempt_count=number, retry_after=None, **_NO_PROGRESS, **taken_by(lease))
    )
    if changed.rowcount != 1:
        raise lost()
    connection.execute(
        insert(attempts).values(
            job_id=row.id,
            attempt_number=number,
            workspace_id=row.workspace_id,
            context_snapshot=row.context_snapshot,
            input_revision=row.input_revision,
            lease_owner=lease.owner,
            lease_token=lease.token.get_secret_value(),
        )
    )
    return JobClaim(
        row.id, row.workspace_id, row.item_image_id, number, row.max_attempts, row.input_revision, row.context_snapshot, lease
    )


def renew_claim(engine: Engine, claim: JobClaim) -> bool:
    """Move the lease's deadline. False if the claim is lost or the lease has run out."""
    return in_transaction(engine, lambda connection: renew(connection, jobs, claim.lease, claim.fence))


def record_preflight(engine: Engine, claim: JobClaim, facts: Mapping[str, Any], total_segments: int) -> None:
    """Write what is known before the first line is read. Raises ScribeError (lease_lost)."""
    merged = func.coalesce(jobs.c.preflight, literal({}, jobs.c.preflight.type)).op("||")(
        literal(dict(facts), jobs.c.preflight.type)
    )
    _write(engine, claim, {"preflight": merged, "total_segments": total_segments})


def record_progress(engine: Engine, claim: JobClaim, completed: int, failed: int) -> None:
    """Write how many lines are read so far. Raises ScribeError (lease_lost)."""
    _write(engine, claim, {"completed_segments": completed, "failed_segments": failed})


def end_attempt(engine: Engine, claim: JobClaim, category: Category) -> None:
    """Close an attempt that yielded nothing: the job waits for a retry if one can help and is left, or else fails.

    Raises ScribeError (lease_lost), and then nothing is written.
    """

    def close(connection: Connection) -> None:
        row = connection.execute(select(jobs).where(claim.fence).with_for_update()).one_or_none()
        if row is None:
            raise lost()
        retry = (category.retryable or category in _STOPPED) and claim.attempt_number < claim.max_attempts
        close_attempt(connection, claim, "retryable_failed" if retry else "failed", error_category=category.value)
        if not retry:
            _fail_row(connection, row, claim.fence, category)
            return
        wait = min(_MAX_RETRY_SECONDS, _RETRY_SECONDS * 2**claim.attempt_number)
        seconds = _STOPPED_SECONDS if category in _STOPPED else wait
        waiting = RELEASED | {"status": "pending", "retry_after": after(seconds)}
        changed = connection.execute(update(jobs).where(claim.fence).values(**waiting))
        if changed.rowcount != 1:
            raise lost()

    in_transaction(engine, close)


def close_attempt(connection: Connection, claim: JobClaim, outcome: str, **values: object) -> None:
    """Close the claim's running attempt. Raises ScribeError (lease_lost)."""
    changed = connection.execute(
        update(attempts).where(_attempt_of(claim), attempts.c.outcome == "running").values(**closed(outcome, **values))
    )
    if changed.rowcount != 1:
        raise lost()


def committed_revision(connection: Connection, claim: JobClaim) -> int | None:
    """Return the revision that this very claim has committed already, or None: the answer to a commit can be lost."""
    return connection.scalar(select(attempts.c.result_revision).where(_attempt_of(claim), attempts.c.outcome == "completed"))


def _attempt_of(claim: JobClaim) -> ColumnElement[bool]:
    return and_(
        attempts.c.job_id == claim.job_id,
        attempts.c.attempt_number == claim.attempt_number,
        attempts.c.input_revision == claim.input_revision,
        attempts.c.lease_token == claim.lease.token.get_secret_value(),
    )


def _fail_row(connection: Connection, row: Row[Any], fence: ColumnElement[bool], category: Category) -> None:
    message = _MESSAGES.get(category, _PROVIDER_MESSAGE)
    finished_at = connection.execute(
        update(jobs)
        .where(fence)
        .values(status="failed", error=message, error_category=category.value, finished_at=func.clock_timestamp(), **RELEASED)
        .returning(jobs.c.finished_at)
    ).scalar_one_or_none()
    if finished_at is None:
        raise lost()
    facts = {"attemptNumber": row.attempt_count, "reason": message, "category": category.value}
    record_events(connection, [job_event(EventType.TRANSCRIPTION_FAILED, row, finished_at, facts)])


def job_event(event_type: EventType, row: Row[Any], at: datetime, facts: Mapping[str, object]) -> Event:
    """Return an event about a job's row; a job that superseded another says which."""
    superseded = {} if row.supersedes is None else {"supersedes": str(row.supersedes)}
    return Event(event_type, row.workspace_id, row.item_image_id, at, {"jobId": str(row.id)} | superseded | dict(facts), row.id)


def closed(outcome: str, **values: object) -> dict[str, object]:
    """The values of an attempt that ends now; it never ends before it began, even if the server's clock was set back."""
    return {"outcome": outcome, "finished_at": func.greatest(attempts.c.started_at, func.clock_timestamp())} | values


def _write(engine: Engine, claim: JobClaim, values: Mapping[str, Any]) -> None:
    changed = in_transaction(
        engine, lambda connection: connection.execute(update(jobs).where(claim.fence).values(**values)).rowcount
    )
    if changed != 1:
        raise lost()


def lost() -> ScribeError:
    """The error for a write that comes too late."""
    return ScribeError(Category.LEASE_LOST, "the job is no longer held by this worker")
