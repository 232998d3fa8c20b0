"""Exports that are kept in the store: statements on `page_exports`, and how a draft's exports come to be there.

An object has an owner at any moment: before it is written a staged row of the cleanup outbox, afterwards its own row here. Nobody
has to repair anything after a crash, and an object that two have made at the same time is removed once.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import Connection, Engine, func, insert, select

from scribe_pipeline.database import in_transaction, lock
from scribe_pipeline.database.tables import annotation_pages, ingest_batch_files, item_image_stages, item_images, page_exports
from scribe_pipeline.exports.committed import committed_page
from scribe_pipeline.exports.formats import FORMATS, render
from scribe_pipeline.pages import Image
from scribe_pipeline.storage import Blob, BlobStore, new_object_key, stage_blobs, take_back_blobs

# How long whoever writes an object may take until it is removed again; some seconds are enough.
_WRITING_SECONDS = 3600
_DUE_AT_ONCE = 100


@dataclass(frozen=True)
class PageExport:
    """A stored export: its format, the object that holds it, and its bytes' number and digest."""

    format: str
    object_key: str
    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class DerivedPage:
    """What was made from a revision of an image's page; no exports if they were there already."""

    image: Image
    revision: int
    exports: tuple[PageExport, ...]


def due_exports(engine: Engine, batch_id: UUID | None = None) -> Iterator[tuple[UUID, int]]:
    """Yield image and head revision of each draft whose exports are not all there, of one batch or of all."""
    pages, exports = annotation_pages.c, page_exports.c
    kept = select(func.count()).where(exports.item_image_id == pages.item_image_id, exports.revision == pages.revision)
    due = (
        select(pages.item_image_id, pages.revision)
        .join(item_image_stages, item_image_stages.c.item_image_id == pages.item_image_id)
        .where(item_image_stages.c.stage == "review", kept.scalar_subquery() < len(FORMATS))
        .order_by(pages.item_image_id)
        .limit(_DUE_AT_ONCE)
    )
    if batch_id is not None:
        of_batch = select(ingest_batch_files.c.item_image_id).where(ingest_batch_files.c.batch_id == batch_id)
        due = due.where(pages.item_image_id.in_(of_batch))
    following = due
    while found := in_transaction(engine, lambda connection: connection.execute(following).all()):  # noqa: B023 - called at once
        yield from ((row.item_image_id, row.revision) for row in found)
        following = due.where(pages.item_image_id > found[-1].item_image_id)


def derive_exports(engine: Engine, store: BlobStore, image_id: UUID, revision: int) -> DerivedPage:
    """Make the exports of a committed revision that are not in the store yet.

    Raises ScribeError: not_found if there is no such revision, too_large for a page of more than 100,000 words or an export of
    more than 32 MiB, unavailable if the store cannot be written to.
    """
    (image, page), there = in_transaction(
        engine,
        lambda connection: (committed_page(connection, image_id, revision), _formats(connection, image_id, revision)),
    )
    contents = render(image, page, [name for name in FORMATS if name not in there])
    made = [_as_export(name, data) for name, data in contents.items()]
    blobs = [Blob(image.workspace_id, export.object_key, 0) for export in made]
    in_transaction(engine, lambda connection: stage_blobs(connection, blobs, _WRITING_SECONDS))
    for export in made:
        # whoever removes the object by its key finds by it what a dead writer has left of it, too
        store.write(export.object_key, contents[export.format], claim=export.object_key)
    kept = in_transaction(engine, lambda connection: _keep(connection, image, revision, made))
    for export in made:
        if export not in kept:
            # whose removal may have been over before it was written
            store.delete(export.object_key)
    return DerivedPage(image, revision, kept)


def _as_export(name: str, data: bytes) -> PageExport:
    sha256 = hashlib.sha256(data).hexdigest()
    return PageExport(name, new_object_key(sha256, FORMATS[name].extension.rpartition(".")[2]), sha256, len(data))


def _formats(connection: Connection, image_id: UUID, revision: int) -> set[str]:
    columns = page_exports.c
    return set(
        connection.execute(select(columns.format).where(columns.item_image_id == image_id, columns.revision == revision)).scalars()
    )


def _keep(connection: Connection, image: Image, revision: int, made: Sequence[PageExport]) -> tuple[PageExport, ...]:
    """Refer to those of the objects that are still wanted, and leave the others to be removed."""
    if not lock(connection, {item_images: item_images.c.id == image.id})[item_images]:
        return ()
    there = _formats(connection, image.id, revision)
    staged = take_back_blobs(connection, [export.object_key for export in made if export.format not in there])
    kept = tuple(export for export in made if export.object_key in staged)
    if kept:
        owner = {"item_image_id": image.id, "revision": revision, "workspace_id": image.workspace_id}
        connection.execute(insert(page_exports), [owner | vars(export) for export in kept])
    return kept
