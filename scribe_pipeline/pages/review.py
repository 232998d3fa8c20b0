"""A person's save of a page: a compare-and-swap on the revision that he has seen, with index, correction metric and event."""

from typing import Any
from uuid import UUID

from rapidfuzz.distance import Levenshtein
from sqlalchemy import Connection, Engine, exists, select, update

from scribe_pipeline.database import in_transaction, lock
from scribe_pipeline.database.tables import (
    annotation_page_revisions,
    annotation_pages,
    current_ocr_runs,
    item_images,
    ocr_runs,
)
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Event, EventType, record_events
from scribe_pipeline.pages.images import load_image
from scribe_pipeline.pages.profile import check_page, normal_form, plain_text
from scribe_pipeline.pages.revisions import Author, replace_page

# Longer texts are no page's, and the distance takes time by the square of their length: some seconds for these.
_MAX_MEASURED = 300_000


def save_page(engine: Engine, image_id: UUID, expected: int, payload: str, author: str) -> int:
    """Write a person's revision `expected` + 1 and return its number.

    `payload` is the whole page as JSON text. The very same save again returns the revision that it has written. Raises
    ScribeError, and nothing is written: not_found, invalid_argument for a payload that breaks the profile, page_changed if
    `expected` is not the head.
    """
    stored = normal_form(payload)
    image, baseline = in_transaction(engine, lambda connection: (load_image(connection, image_id), _baseline(connection, image_id)))
    if image is None:
        raise ScribeError(Category.NOT_FOUND, f"there is no image {image_id}")
    check_page(stored, image)
    # it takes a while, so no row is locked meanwhile
    distance = None if baseline is None else correction_distance(baseline.original_text, plain_text(stored))

    def save(connection: Connection) -> int:
        page = annotation_pages.c.item_image_id == image_id
        if not lock(connection, {item_images: item_images.c.id == image_id, annotation_pages: page})[item_images]:
            raise ScribeError(Category.NOT_FOUND, f"there is no image {image_id}")
        revision = replace_page(connection, image, expected, stored, Author("human", author))
        if revision is None:
            return _saved_before(connection, image_id, expected, stored, author)
        if baseline is not None:
            _record_correction(connection, image_id, baseline.id, revision, distance)
        at = connection.execute(select(annotation_pages.c.updated_at).where(page)).scalar_one()
        told = {"itemId": str(image.item_id), "canvasUri": image.canvas_uri, "revision": revision}
        record_events(connection, [Event(EventType.ANNOTATIONS_SAVED, image.workspace_id, image.id, at, told)])
        return revision

    return in_transaction(engine, save)


def correction_distance(baseline: str, corrected: str) -> int | None:
    """Return how many code points the correction has changed: Levenshtein's distance, without regard to case and white space.

    None for texts so long that it would take minutes to count.
    """
    texts = [" ".join(text.lower().split()) for text in (baseline, corrected)]
    return None if max(map(len, texts)) > _MAX_MEASURED else Levenshtein.distance(*texts)


def _baseline(connection: Connection, image_id: UUID) -> Any:
    return connection.execute(
        select(ocr_runs.c.id, ocr_runs.c.original_text)
        .join(current_ocr_runs, current_ocr_runs.c.ocr_run_id == ocr_runs.c.id)
        .where(current_ocr_runs.c.item_image_id == image_id)
    ).one_or_none()


def _record_correction(connection: Connection, image_id: UUID, run_id: UUID, revision: int, distance: int | None) -> None:
    """Say on the image's baseline how far the page is from it by now, if that is still its current one."""
    current = exists().where(current_ocr_runs.c.item_image_id == image_id, current_ocr_runs.c.ocr_run_id == run_id)
    connection.execute(
        update(ocr_runs).where(ocr_runs.c.id == run_id, current).values(canonical_revision=revision, levenshtein_distance=distance)
    )


def _saved_before(connection: Connection, image_id: UUID, expected: int, payload: str, author: str) -> int:
    """Return the head if it is this very save, whose answer was lost. Raises ScribeError (page_changed) otherwise."""
    chain = annotation_page_revisions
    head = connection.execute(
        select(chain).where(chain.c.item_image_id == image_id).order_by(chain.c.revision.desc()).limit(1)
    ).one_or_none()
    if head is None:
        raise ScribeError(Category.PAGE_CHANGED, f"image {image_id} has no page yet: save it once it has one")
    if (head.revision, head.payload, head.author_kind, head.author) == (expected + 1, payload, "human", author):
        return int(head.revision)
    problem = f"the page is at revision {head.revision}, not at {expected}: look at it as it is now, save then"
    raise ScribeError(Category.PAGE_CHANGED, problem)
