"""Statements on transcription jobs and their attempts. Each is one short transaction whose every effect depends on the fence."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import uuid_utils.compat as uuid_utils
from sqlalchemy import ColumnElement, Connection, Engine, and_, func, insert, literal, select, update

from scribe_pipeline.contexts import ContextSnapshot
from scribe_pipeline.database import RELEASED, Lease, due, held_by, in_transaction, new_lease, renew, taken_by
from scribe_pipeline.database.tables import annotation_pages, transcription_job_attempts, transcription_jobs
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import EventType, record_event

jobs, attempts = transcription_jobs, transcription_job_attempts

# A retry after n attempts waits 2^n times ten seconds, five minutes at most; one that was interrupted, five seconds.
_RETRY_SECONDS, _MAX_RETRY_SECONDS, _INTERRUPTED_SECONDS = 10, 300, 5

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
_ACTIVE = ("pending", "running")
_NO_PROGRESS = {"total_segments": 0, "completed_segments": 0, "failed_segments": 0}
_PROVIDER_MESSAGE = "transcription provider request failed"


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


def create_job(
    connection: Connection,
    workspace_id: UUID,
    item_image_id: UUID,
    batch_id: UUID | None,
    context: ContextSnapshot,
    max_attempts: int,
    preflight: Mapping[str, Any] | None = None,
) -> UUID:
    """Ask for the image's page to be transcribed as it stands, and return the job's id. `preflight` is what is known of it so far.

    The same request returns the job that is active for it already. Raises ScribeError (failed_precondition) for an image
    that has no page, or that another active job works on.
    """
    snapshot = context.to_text()
    revision = connection.scalar(
        select(annotation_pages.c.revision).where(
            annotation_pages.c.item_image_id == item_image_id, annotation_pages.c.workspace_id == workspace_id
        )
    )
    if revision is None:
        raise ScribeError(Category.FAILED_PRECONDITION, f"image {item_image_id} has no canonical page to transcribe")
    active = connection.execute(
        select(jobs).where(jobs.c.item_image_id == item_image_id, jobs.c.status.in_(_ACTIVE)).with_for_update()
    ).one_or_none()
    if active is not None:
        if (active.context_snapshot, active.input_revision) == (snapshot, revision):
            return UUID(str(active.id))
        raise ScribeError(Category.FAILED_PRECONDITION, f"image {item_image_id} has an active job with another context or revision")
    job_id = uuid_utils.uuid7()
    connection.execute(
        insert(jobs).values(
            id=job_id,
            workspace_id=workspace_id,
            item_image_id=item_image_id,
            batch_id=batch_id,
            context_id=context.context_id,
            context_snapshot=snapshot,
            input_revision=revision,
            max_attempts=max_attempts,
            preflight=preflight,
        )
    )
    return job_id


def claim_job(engine: Engine, lease_seconds: float, batch_id: UUID | None = None) -> JobClaim | None:
    """Take the oldest job that is due, of one batch or of all, or None if there is none.

    A job whose worker vanished has its attempt closed as `lease_expired` first; if that was its last, it fails and the
    next job is looked at.
    """
    while True:
        outcome = in_transaction(engine, lambda connection: _claim(connection, new_lease(lease_seconds), batch_id))
        if not isinstance(outcome, UUID):
            return outcome


def _claim(connection: Connection, lease: Lease, batch_id: UUID | None) -> JobClaim | UUID | None:
    """One look at the queue: a claim, the id of a job that was failed instead, or None for an empty queue."""
    wanted = due(jobs, "pending", "running")
    if batch_id is not None:
        wanted = and_(wanted, jobs.c.batch_id == batch_id)
    row = connection.execute(
        select(jobs).where(wanted).order_by(jobs.c.created_at, jobs.c.id).limit(1).with_for_update(skip_locked=True)
    ).one_or_none()
    if row is None:
        return None
    if row.status == "running":
        lost = and_(attempts.c.job_id == row.id, attempts.c.attempt_number == row.attempt_count, attempts.c.outcome == "running")
        finished_at = _one(
            connection.execute(
                update(attempts)
                .where(lost)
                .values(outcome="lease_expired", finished_at=func.clock_timestamp())
                .returning(attempts.c.finished_at)
            ).scalar_one_or_none()
        )
        if row.attempt_count >= row.max_attempts:
            held = and_(jobs.c.id == row.id, jobs.c.status == "running", jobs.c.lease_token == row.lease_token)
            _fail_row(connection, row, held, Category.ATTEMPTS_EXHAUSTED, finished_at)
            return UUID(str(row.id))
    number = row.attempt_count + 1
    changed = connection.execute(
        update(jobs)
        .where(jobs.c.id == row.id, jobs.c.attempt_count == row.attempt_count, jobs.c.status.in_(_ACTIVE))
        .values(status="running", attempt_count=number, **_NO_PROGRESS, **taken_by(lease))
    )
    if changed.rowcount != 1:
        raise _lost()
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
            raise _lost()
        retry = category.retryable and claim.attempt_number < claim.max_attempts
        finished_at = close_attempt(connection, claim, "retryable_failed" if retry else "failed", error_category=category.value)
        if not retry:
            _fail_row(connection, row, claim.fence, category, finished_at)
            return
        wait = min(_MAX_RETRY_SECONDS, _RETRY_SECONDS * 2**claim.attempt_number)
        seconds = _INTERRUPTED_SECONDS if category is Category.INTERRUPTED else wait
        retry_after = func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, seconds)
        changed = connection.execute(
            update(jobs).where(claim.fence).values(status="pending", **RELEASED | {"retry_after": retry_after})
        )
        if changed.rowcount != 1:
            raise _lost()

    in_transaction(engine, close)


def close_attempt(connection: Connection, claim: JobClaim, outcome: str, **values: object) -> datetime:
    """Close the claim's running attempt and return the time of it. Raises ScribeError (lease_lost)."""
    return _one(
        connection.execute(
            update(attempts)
            .where(
                attempts.c.job_id == claim.job_id,
                attempts.c.attempt_number == claim.attempt_number,
                attempts.c.input_revision == claim.input_revision,
                attempts.c.lease_token == claim.lease.token.get_secret_value(),
                attempts.c.outcome == "running",
            )
            .values(outcome=outcome, finished_at=func.clock_timestamp(), **values)
            .returning(attempts.c.finished_at)
        ).scalar_one_or_none()
    )


def _fail_row(connection: Connection, row: Any, fence: ColumnElement[bool], category: Category, at: datetime) -> None:
    message = _MESSAGES.get(category, _PROVIDER_MESSAGE)
    changed = connection.execute(
        update(jobs)
        .where(fence)
        .values(status="failed", error=message, error_category=category.value, finished_at=func.clock_timestamp(), **RELEASED)
    )
    if changed.rowcount != 1:
        raise _lost()
    record_event(
        connection,
        EventType.TRANSCRIPTION_FAILED,
        workspace_id=row.workspace_id,
        item_image_id=row.item_image_id,
        at=at,
        data={"jobId": str(row.id), "attemptNumber": row.attempt_count, "reason": message, "category": category.value},
        job_id=row.id,
    )


def _write(engine: Engine, claim: JobClaim, values: Mapping[str, Any]) -> None:
    changed = in_transaction(
        engine, lambda connection: connection.execute(update(jobs).where(claim.fence).values(**values)).rowcount
    )
    if changed != 1:
        raise _lost()


def _one(finished_at: datetime | None) -> datetime:
    if finished_at is None:
        raise _lost()
    return finished_at


def _lost() -> ScribeError:
    return ScribeError(Category.LEASE_LOST, "the job is no longer held by this worker")
