"""Asking for jobs, replacing and canceling them: each one transaction, jobs before all that they work on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import uuid_utils.compat as uuid_utils
from sqlalchemy import Connection, Engine, Row, and_, func, insert, select, update

from scribe_pipeline.contexts import ContextSnapshot, find_context, refresh_context
from scribe_pipeline.database import RELEASED, in_transaction, lock, one_of
from scribe_pipeline.database.tables import (
    annotation_page_revisions,
    annotation_pages,
    ingest_batches,
    item_images,
    items,
    transcription_job_attempts,
    transcription_jobs,
)
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Channel, EventType, Operator, record_audit, record_events, wake
from scribe_pipeline.jobs.queue import ACTIVE, closed, job_event, lost
from scribe_pipeline.pages import Image, load_image

jobs, attempts = transcription_jobs, transcription_job_attempts

# How many active jobs a workspace may have. Requests that are made at once may pass it by a few.
MAX_ACTIVE_JOBS = 100_000


@dataclass(frozen=True)
class JobRequest:
    """The job that serves a request: a new one and what it superseded, or the one that was there already.

    `corrected_by` names the person whose revision the job will read over, if the page's newest one is a person's.
    """

    job_id: UUID
    created: bool
    superseded: UUID | None = None
    corrected_by: str | None = None


def request_job(engine: Engine, image_id: UUID, context_name: str | None, max_attempts: int, operator: Operator) -> JobRequest:
    """Ask, as an operator, for a page to be transcribed as it stands now.

    Without a name, the context is that of the image's newest job as it is configured now, or else what rules and defaults say of
    its item. Raises ScribeError: not_found, invalid_argument for the context, failed_precondition for an image without a page.
    """

    def request(connection: Connection) -> JobRequest:
        image = load_image(connection, image_id)
        if image is None:
            raise ScribeError(Category.NOT_FOUND, f"there is no image {image_id}")
        newest = select(jobs.c.context_id).where(jobs.c.item_image_id == image_id).order_by(jobs.c.created_at.desc()).limit(1)
        context_id = None if context_name else connection.scalar(newest)
        context = refresh_context(connection, context_id) if context_id else None
        if context is None:
            known = connection.scalar(select(items.c.metadata).where(items.c.id == image.item_id))
            context = find_context(connection, image.workspace_id, context_name, known or {})
        made = create_job(connection, image, context, max_attempts)
        if made.created:
            record_audit(connection, operator, "job create", f"job {made.job_id}")
        return replace(made, corrected_by=_corrector(connection, image_id))

    made = in_transaction(engine, request)
    wake(engine, Channel.JOBS)
    return made


def _corrector(connection: Connection, image_id: UUID) -> str | None:
    chain = annotation_page_revisions
    newest = select(chain).where(chain.c.item_image_id == image_id).order_by(chain.c.revision.desc()).limit(1)
    revision = connection.execute(newest).one()
    return str(revision.author) if revision.author_kind == "human" else None


def create_job(connection: Connection, image: Image, context: ContextSnapshot, max_attempts: int) -> JobRequest:
    """Ask for the image's page to be transcribed as it stands.

    The same request returns the job that is pending for it, or running with a live lease; any other active job is superseded
    and hands its batch on. Raises ScribeError (failed_precondition) for an image without a page, or a full queue.
    """
    held = lock(
        connection,
        {
            ingest_batches: ingest_batches.c.item_id == image.item_id,
            item_images: and_(item_images.c.id == image.id, item_images.c.workspace_id == image.workspace_id),
            jobs: and_(jobs.c.item_image_id == image.id, jobs.c.status.in_(ACTIVE)),
            annotation_pages: annotation_pages.c.item_image_id == image.id,
        },
    )
    if not (held[item_images] and held[annotation_pages]):
        raise ScribeError(Category.FAILED_PRECONDITION, f"image {image.id} has no canonical page to transcribe")
    revision = held[annotation_pages][0].revision
    active = held[jobs][0] if held[jobs] else None
    if active is None:
        _check_room(connection, image.workspace_id)
    elif (active.context_snapshot, active.input_revision) == (context.to_text(), revision) and _alive(connection, active):
        return JobRequest(active.id, created=False)
    else:
        _close(connection, [active], "superseded", "superseded by a newer transcription request")
    superseded, batch_id = (None, None) if active is None else (active.id, active.batch_id)
    job_id = insert_job(connection, image, batch_id, context, revision, max_attempts, supersedes=superseded)
    return JobRequest(job_id, created=True, superseded=superseded)


def insert_job(
    connection: Connection,
    image: Image,
    batch_id: UUID | None,
    context: ContextSnapshot,
    revision: int,
    max_attempts: int,
    *,
    supersedes: UUID | None = None,
    preflight: Mapping[str, Any] | None = None,
) -> UUID:
    """Add a job for a page that has no active one and return its id. `preflight` is what is known of the page so far."""
    job_id = uuid_utils.uuid7()
    connection.execute(
        insert(jobs).values(
            id=job_id,
            workspace_id=image.workspace_id,
            item_image_id=image.id,
            batch_id=batch_id,
            supersedes=supersedes,
            context_id=context.context_id,
            context_snapshot=context.to_text(),
            input_revision=revision,
            max_attempts=max_attempts,
            preflight=preflight,
        )
    )
    return job_id


def cancel_job(engine: Engine, job_id: UUID, operator: Operator) -> bool:
    """Cancel a job; False if it was canceled before. Raises ScribeError: not_found, failed_precondition if it has ended."""

    def cancel(connection: Connection) -> bool:
        found = lock(connection, {jobs: jobs.c.id == job_id})[jobs]
        if not found:
            raise ScribeError(Category.NOT_FOUND, f"there is no job {job_id}")
        if found[0].status == "canceled":
            return False
        if found[0].status not in ACTIVE:
            raise ScribeError(
                Category.FAILED_PRECONDITION, f"job {job_id} is {found[0].status}: only an active one can be canceled"
            )
        cancel_rows(connection, found, "canceled by an operator")
        record_audit(connection, operator, "job cancel", f"job {job_id}")
        return True

    return in_transaction(engine, cancel)


def cancel_rows(connection: Connection, rows: Sequence[Row[Any]], message: str) -> None:
    """Cancel active jobs whose rows the caller has locked, with their running attempts, and say so to those outside."""
    finished = _close(connection, rows, "canceled", message)
    record_events(
        connection,
        [job_event(EventType.TRANSCRIPTION_CANCELED, row, finished[row.id], {"attemptNumber": row.attempt_count}) for row in rows],
    )


def _close(connection: Connection, rows: Sequence[Row[Any]], status: str, message: str) -> dict[UUID, Any]:
    """End active jobs and their running attempts, whoever holds them, and return when each ended. Their tokens are dead then."""
    ids = [row.id for row in rows]
    ended = connection.execute(
        update(jobs)
        .where(one_of(jobs.c.id, ids), jobs.c.status.in_(ACTIVE))
        .values(status=status, error=message, finished_at=func.clock_timestamp(), retry_after=None, **RELEASED)
        .returning(jobs.c.id, jobs.c.finished_at)
    ).all()
    if len(ended) != len(ids):
        raise lost()
    connection.execute(
        update(attempts).where(one_of(attempts.c.job_id, ids), attempts.c.outcome == "running").values(**closed(status))
    )
    return {row.id: row.finished_at for row in ended}


def _alive(connection: Connection, row: Row[Any]) -> bool:
    """Whether somebody will see to the job: it is pending, or its worker's lease has not run out."""
    return bool(row.status == "pending" or connection.scalar(select(row.lease_until >= func.clock_timestamp())))


def _check_room(connection: Connection, workspace_id: UUID) -> None:
    beyond = select(jobs.c.id).where(jobs.c.workspace_id == workspace_id, jobs.c.due_at.is_not(None))
    if connection.execute(beyond.offset(MAX_ACTIVE_JOBS - 1).limit(1)).one_or_none() is not None:
        raise ScribeError(
            Category.FAILED_PRECONDITION,
            f"the workspace has {MAX_ACTIVE_JOBS:,} active jobs, which is as many as it may: wait until some have ended",
        )
