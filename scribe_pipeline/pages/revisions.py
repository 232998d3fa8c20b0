"""Statements on pages: the head, the chain of its revisions, and the index derived from the head. All three change together."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, delete, insert, select, update

from scribe_pipeline.database.tables import annotation_page_revisions, annotation_pages, annotations
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.pages.images import Image
from scribe_pipeline.pages.profile import check_page, index_rows


@dataclass(frozen=True)
class Author:
    """Who wrote a revision: `kind` is ocr, human, import or reprocess; `job_id` names the transcription job, if one did."""

    kind: str
    name: str
    job_id: UUID | None = None


@dataclass(frozen=True)
class PageHead:
    """The newest committed revision of a page."""

    revision: int
    payload: str


@dataclass(frozen=True)
class PageRevision:
    """A committed revision, the newest or an earlier one, and when it was written."""

    revision: int
    payload: str
    created_at: datetime


def load_head(connection: Connection, image_id: UUID) -> PageHead | None:
    """Return the page's head, or None if the image has no page."""
    columns = annotation_pages.c
    row = connection.execute(select(columns.revision, columns.payload).where(columns.item_image_id == image_id)).one_or_none()
    return None if row is None else PageHead(*row)


def load_revision(connection: Connection, image_id: UUID, revision: int | None = None) -> PageRevision:
    """Return a revision of the page, the newest if none is named. Raises ScribeError (not_found)."""
    columns = annotation_page_revisions.c
    found = select(columns.revision, columns.payload, columns.created_at).where(columns.item_image_id == image_id)
    if revision is not None:
        found = found.where(columns.revision == revision)
    row = connection.execute(found.order_by(columns.revision.desc()).limit(1)).one_or_none()
    if row is None:
        which = "no page" if revision is None else f"no revision {revision}"
        raise ScribeError(Category.NOT_FOUND, f"image {image_id} has {which}")
    return PageRevision(*row)


def create_page(connection: Connection, image: Image, payload: str, author: Author) -> datetime:
    """Write revision 1 and return the time of it. Raises ScribeError for a payload that breaks the profile."""
    check_page(payload, image)
    created_at: datetime = connection.execute(
        insert(annotation_pages)
        .values(
            item_image_id=image.id,
            workspace_id=image.workspace_id,
            page_id=image.page_id,
            canvas_uri=image.canvas_uri,
            payload=payload,
            revision=1,
            updated_by=author.name,
        )
        .returning(annotation_pages.c.created_at)
    ).scalar_one()
    _append(connection, image, 1, payload, author)
    return created_at


def replace_page(connection: Connection, image: Image, expected: int, payload: str, author: Author) -> int | None:
    """Write revision `expected` + 1 if `expected` is still the head; None, and nothing written, if it is not.

    Raises ScribeError for a payload that breaks the profile.
    """
    check_page(payload, image)
    revision = connection.execute(
        update(annotation_pages)
        .where(annotation_pages.c.item_image_id == image.id, annotation_pages.c.revision == expected)
        .values(payload=payload, revision=annotation_pages.c.revision + 1, updated_by=author.name)
        .returning(annotation_pages.c.revision)
    ).scalar_one_or_none()
    if revision is not None:
        _append(connection, image, revision, payload, author)
    return revision


def _append(connection: Connection, image: Image, revision: int, payload: str, author: Author) -> None:
    connection.execute(
        insert(annotation_page_revisions).values(
            item_image_id=image.id,
            revision=revision,
            workspace_id=image.workspace_id,
            payload=payload,
            author_kind=author.kind,
            author=author.name,
            job_id=author.job_id,
        )
    )
    connection.execute(delete(annotations).where(annotations.c.item_image_id == image.id))
    rows = [{"item_image_id": image.id, "workspace_id": image.workspace_id} | row for row in index_rows(payload)]
    if rows:
        connection.execute(insert(annotations), rows)
