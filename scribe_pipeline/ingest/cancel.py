"""Canceling a batch: everything of it that is open, in one transaction, the workers' tokens before what they work on."""

from uuid import UUID

from sqlalchemy import Connection, Engine, and_, delete, exists, func, select, update

from scribe_pipeline.database import RELEASED, in_transaction, lock, one_of
from scribe_pipeline.database.tables import (
    annotation_pages,
    ingest_batch_files,
    ingest_batches,
    item_images,
    transcription_jobs,
)
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator, record_audit
from scribe_pipeline.jobs import ACTIVE, cancel_rows
from scribe_pipeline.storage import Blob, hand_over_blobs

batches, files, images, jobs, pages = ingest_batches, ingest_batch_files, item_images, transcription_jobs, annotation_pages


def cancel_batch(engine: Engine, batch_id: UUID, operator: Operator, grace_seconds: float) -> bool:
    """Cancel a batch with its files, active jobs and running attempts; False if it was canceled before.

    Images that have a page stay, with their page. The others go, and their objects are handed to the cleanup outbox; one that
    a worker may be writing just now is left alone for `grace_seconds`. Raises ScribeError: not_found, failed_precondition if
    the batch is over.
    """
    return in_transaction(engine, lambda connection: _cancel(connection, batch_id, operator, grace_seconds))


def _cancel(connection: Connection, batch_id: UUID, operator: Operator, grace_seconds: float) -> bool:
    item = select(batches.c.item_id).where(batches.c.id == batch_id).scalar_subquery()
    held = lock(
        connection,
        {
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
    hand_over_blobs(connection, [Blob(image.workspace_id, image.object_key, image.storage_bytes) for image in held[images]])
    hand_over_blobs(
        connection,
        [
            Blob(file.workspace_id, file.object_key, file.size_bytes)
            for file in held[files]
            if file.status in ("pending", "processing") and file.item_image_id is None and file.object_key is not None
        ],
        grace_seconds,
    )
    connection.execute(delete(images).where(one_of(images.c.id, incomplete)))
    record_audit(connection, operator, "batch cancel", f"batch {batch_id}")
    return True
