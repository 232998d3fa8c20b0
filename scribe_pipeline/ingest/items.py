"""Items: what there is of each, and its deletion, which is the only way in which evidence goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, Connection, Engine, Row, Select, cast, delete, func, select, text

from scribe_pipeline.contexts import Metadata
from scribe_pipeline.database import in_transaction, lock, one_of
from scribe_pipeline.database.tables import (
    annotation_page_revisions,
    annotation_pages,
    annotations,
    current_ocr_runs,
    ingest_batch_files,
    ingest_batches,
    item_image_stages,
    item_images,
    items,
    ocr_runs,
    page_exports,
    storage_quota_usage,
    storage_reservations,
    transcription_job_attempts,
    transcription_jobs,
    workspaces,
)
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator, record_audit
from scribe_pipeline.storage import Blob, hand_over_blobs, hand_over_projections
from scribe_pipeline.workspaces import guards, release

images, pages, jobs, batches, files = item_images, annotation_pages, transcription_jobs, ingest_batches, ingest_batch_files

# What belongs to an image, each before what it refers to; jobs come before them, with their attempts.
_OF_IMAGES = (current_ocr_runs, ocr_runs, page_exports, annotations, annotation_page_revisions, annotation_pages)
# Lets the triggers pass that otherwise keep evidence from being deleted, until the transaction ends.
_DELETING = text("SET LOCAL scribe.deleting = 'item'")


@dataclass(frozen=True)
class ItemListing:
    """An item as a list shows it: the bytes are those of its scans."""

    id: UUID
    name: str
    workspace: str
    images: int
    bytes: int
    created_at: datetime


@dataclass(frozen=True)
class ItemImage:
    """An image of an item: where it stands, and its page's revision (None while it has no page)."""

    id: UUID
    label: str
    stage: str
    revision: int | None
    bytes: int


@dataclass(frozen=True)
class ItemDetail:
    """An item with the batch that it came of, if one did, what is known of it, and its images in order."""

    item: ItemListing
    batch_id: UUID | None
    metadata: Metadata
    images: tuple[ItemImage, ...]


def list_items(connection: Connection) -> list[ItemListing]:
    """Return all items, newest first."""
    return [ItemListing(*row) for row in connection.execute(_listed())]


def load_item(connection: Connection, item_id: UUID) -> ItemDetail:
    """Return the item. Raises ScribeError (not_found)."""
    listed = connection.execute(_listed().where(items.c.id == item_id)).one_or_none()
    if listed is None:
        raise _unknown(item_id)
    found = connection.execute(
        select(images.c.id, images.c.label, item_image_stages.c.stage, pages.c.revision, images.c.storage_bytes)
        .join(item_image_stages, item_image_stages.c.item_image_id == images.c.id)
        .outerjoin(pages, pages.c.item_image_id == images.c.id)
        .where(images.c.item_id == item_id)
        .order_by(images.c.sequence, images.c.frame)
    )
    batch_id = connection.scalar(select(batches.c.id).where(batches.c.item_id == item_id))
    known = connection.scalar(select(items.c.metadata).where(items.c.id == item_id)) or {}
    return ItemDetail(ItemListing(*listed), batch_id, known, tuple(ItemImage(*row) for row in found))


def delete_item(engine: Engine, item_id: UUID, operator: Operator) -> None:
    """Delete an item with all that there is of it, an open batch and running jobs too, and ask for the removal of its objects.

    Their bytes count until they are removed. What a worker may be writing just now stays staged until its own deadline.
    What happened stays: events with their deliveries, and the audit. Raises ScribeError (not_found).
    """
    in_transaction(engine, lambda connection: _delete(connection, item_id, operator))


def _delete(connection: Connection, item_id: UUID, operator: Operator) -> None:
    # whoever writes a page has its image locked, so pages, which can be large, need not be read to be locked
    own_images = images.c.item_id == item_id
    held = lock(
        connection,
        {
            storage_quota_usage: guards(select(items.c.workspace_id).where(items.c.id == item_id).scalar_subquery()),
            batches: batches.c.item_id == item_id,
            files: files.c.batch_id.in_(select(batches.c.id).where(batches.c.item_id == item_id)),
            items: items.c.id == item_id,
            images: own_images,
            jobs: jobs.c.item_image_id.in_(select(images.c.id).where(own_images)),
        },
    )
    if not held[items]:
        raise _unknown(item_id)
    owner = held[items][0].workspace_id
    batch_ids, image_ids, job_ids = ([row.id for row in held[table]] for table in (batches, images, jobs))
    _hand_over(connection, held[images])
    hand_over_projections(connection, owner, item_id, image_ids)
    connection.execute(_DELETING)
    connection.execute(delete(files).where(one_of(files.c.batch_id, batch_ids)))
    attempts = transcription_job_attempts
    connection.execute(delete(attempts).where(one_of(attempts.c.job_id, job_ids)))
    connection.execute(delete(jobs).where(one_of(jobs.c.id, job_ids)))
    for table in _OF_IMAGES:
        connection.execute(delete(table).where(one_of(table.c.item_image_id, image_ids)))
    connection.execute(delete(batches).where(one_of(batches.c.id, batch_ids)))
    connection.execute(delete(images).where(one_of(images.c.id, image_ids)))
    connection.execute(delete(items).where(items.c.id == item_id))
    release(connection, owner, one_of(storage_reservations.c.batch_id, batch_ids))
    record_audit(connection, operator, "item delete", f"item {item_id}")


def _hand_over(connection: Connection, held: Sequence[Row[Any]]) -> None:
    """Ask for the removal of the images' objects and exports."""
    exports = connection.execute(
        select(page_exports.c.workspace_id, page_exports.c.object_key).where(
            one_of(page_exports.c.item_image_id, [image.id for image in held])
        )
    )
    scans = [Blob(image.workspace_id, image.object_key, image.storage_bytes) for image in held]
    hand_over_blobs(connection, [*scans, *(Blob(*export, 0) for export in exports)])


def _listed() -> Select[Any]:
    return (
        select(
            items.c.id,
            items.c.name,
            workspaces.c.name,
            func.count(images.c.id),
            cast(func.coalesce(func.sum(images.c.storage_bytes), 0), BigInteger),
            items.c.created_at,
        )
        .join(workspaces, workspaces.c.id == items.c.workspace_id)
        .outerjoin(images, images.c.item_id == items.c.id)
        .group_by(items.c.id, workspaces.c.name)
        .order_by(items.c.created_at.desc(), items.c.id)
    )


def _unknown(item_id: UUID) -> ScribeError:
    return ScribeError(Category.NOT_FOUND, f"there is no item {item_id}: scribe item list tells them")
