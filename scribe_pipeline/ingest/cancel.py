"""Canceling a batch: everything of it that is open, in one transaction, the workers' tokens before what they work on."""

from uuid import UUID

from sqlalchemy import Connection, Engine, and_, delete, exists, func, select, update

from scribe_pipeline.database import RELEASED, in_transaction, lock, one_of
from scribe_pipeline.database.tables import (
    annotation_pages,
    ingest_batch_files,
    ingest_batches,
    item_images,
    storage_quota_usage,
    storage_reservations,
    transcription_jobs,
)
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator, record_audit
from scribe_pipeline.jobs import ACTIVE, cancel_rows
from scribe_pipeline.storage import Blob, hand_over_blobs
from scribe_pipeline.workspaces import guards, release

batches, files, images, jobs, pages = ingest_batches, ingest_batch_files, item_images, transcription_jobs, annotation_pages


def cancel_batch(engine: Engine, batch_id: UUID, operator: Operator) -> bool:
    """Cancel a batch with its files, active jobs and running attempts; False if it was canceled before.

    Images that have a page stay, with their page. The others go, and their objects are handed to the cleanup outbox; what a
    worker may be writing just now stays staged until its own deadline. Raises ScribeError: not_found, failed_precondition if
    the batch is over.
    """
    return in_transaction(engine, lambda connection: _cancel(connection, batch_id, operator))


def _cancel(connection: Connection, batch_id: UUID, operator: Operator) -> bool:
    item, owner = (
        select(column).where(batches.c.id == batch_id).scalar_subquery() for column in (batches.c.item_id, batches.c.workspace_id)
    )
    held = lock(
        connection,
        {
            storage_quota_usage: guards(owner),
            batches: batches.c.id == batch_id,
            files: files.c.batch_id == batch_id,
            images: and_(images.c.item_id == item, ~exists().where(pages.c.item_image_id == images.c.id)),
            jobs: and_(jobs.c.batch_id == batch_id, jobs.c.status.in_(ACTIVE)),
        },
    )
    if not held[batches]:
        raise ScribeError(Category.NOT_FOUND, f"there is no batch {batch_id}")
    status = held[batches][0].status
    if status == "canceled":
        return False
    ended = connection.execute(
        update(batches)
        .where(batches.c.id == batch_id, batches.c.status.in_(("pending", "running")))
        .values(status="canceled", finished_at=func.clock_timestamp())
    )
    if ended.rowcount != 1:
        raise ScribeError(Category.FAILED_PRECONDITION, f"batch {batch_id} is {status}: only an open batch can be canceled")
    cancel_rows(connection, held[jobs], "canceled with upload batch")
    connection.execute(
        update(files)
        .where(files.c.batch_id == batch_id, files.c.status.in_(("pending", "processing")))
        .values(status="canceled", retry_after=None, **RELEASED)
    )
    incomplete = [image.id for image in held[images]]
    connection.execute(
        update(files).where(files.c.batch_id == batch_id, one_of(files.c.item_image_id, incomplete)).values(item_image_id=None)
    )
    release(connection, held[batches][0].workspace_id, storage_reservations.c.batch_id == batch_id)
    hand_over_blobs(connection, [Blob(image.workspace_id, image.object_key, image.storage_bytes) for image in held[images]])
    connection.execute(delete(images).where(one_of(images.c.id, incomplete)))
    record_audit(connection, operator, "batch cancel", f"batch {batch_id}")
    return True
