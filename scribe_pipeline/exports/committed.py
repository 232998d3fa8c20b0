"""Which page an export is made from: one committed revision with its image, nothing else."""

from uuid import UUID

from sqlalchemy import Connection

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.pages import Image, PageRevision, load_image, load_revision


def committed_page(connection: Connection, image_id: UUID, revision: int | None = None) -> tuple[Image, PageRevision]:
    """Return the image and a revision of its page, the newest if none is named. Raises ScribeError (not_found)."""
    image = load_image(connection, image_id)
    if image is None:
        raise ScribeError(Category.NOT_FOUND, f"there is no image {image_id}")
    return image, load_revision(connection, image_id, revision)


def current_page(connection: Connection, image_id: UUID, expected: int) -> tuple[Image, PageRevision]:
    """Return the image and its page, which is at the revision expected. Raises ScribeError: not_found, failed_precondition."""
    image, page = committed_page(connection, image_id)
    if page.revision != expected:
        problem = f"the page is at revision {page.revision}, not at {expected}: export it as it is now"
        raise ScribeError(Category.FAILED_PRECONDITION, problem)
    return image, page
