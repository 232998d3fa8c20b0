"""A person's save of a page: a compare-and-swap on the revision that he has seen, with index, correction metric and event."""

from uuid import UUID

from rapidfuzz.distance import Levenshtein
from sqlalchemy import Connection, Engine, select, update

from scribe_pipeline.database import in_transaction, lock
from scribe_pipeline.database.tables import annotation_pages, current_ocr_runs, item_images, ocr_runs
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import EventType, record_event
from scribe_pipeline.pages.images import load_image
from scribe_pipeline.pages.profile import normal_form, plain_text
from scribe_pipeline.pages.revisions import Author, replace_page


def save_page(engine: Engine, image_id: UUID, expected: int, payload: str, author: str) -> int:
    """Write a person's revision `expected` + 1 and return its number.

    `payload` is the whole page as JSON text. Raises ScribeError, and nothing is written: not_found, invalid_argument for a
    payload that breaks the profile, page_changed if `expected` is not the head.
    """
    stored = normal_form(payload)

    def save(connection: Connection) -> int:
        held = lock(
            connection,
            {item_images: item_images.c.id == image_id, annotation_pages: annotation_pages.c.item_image_id == image_id},
        )
        image = load_image(connection, image_id)
        if image is None:
            raise ScribeError(Category.NOT_FOUND, f"there is no image {image_id}")
        revision = replace_page(connection, image, expected, stored, Author("human", author))
        if revision is None:
            head = held[annotation_pages]
            there = f"is at revision {head[0].revision}" if head else "has no revision yet"
            raise ScribeError(Category.PAGE_CHANGED, f"the page {there}, not at {expected}: look at it as it is now, save then")
        _measure_correction(connection, image_id, revision, stored)
        record_event(
            connection,
            EventType.ANNOTATIONS_SAVED,
            workspace_id=image.workspace_id,
            item_image_id=image.id,
            at=connection.scalars(select(annotation_pages.c.updated_at).where(annotation_pages.c.item_image_id == image_id)).one(),
            data={"itemId": str(image.item_id), "canvasUri": image.canvas_uri, "revision": revision},
        )
        return revision

    return in_transaction(engine, save)


def correction_distance(baseline: str, corrected: str) -> int:
    """Return how many code points the correction has changed: Levenshtein's distance, without regard to case and white space."""
    return Levenshtein.distance(*(" ".join(text.lower().split()) for text in (baseline, corrected)))


def _measure_correction(connection: Connection, image_id: UUID, revision: int, payload: str) -> None:
    """Say on the image's current baseline, if it has one, how far the page is from it by now."""
    run = connection.execute(
        select(ocr_runs.c.id, ocr_runs.c.original_text)
        .join(current_ocr_runs, current_ocr_runs.c.ocr_run_id == ocr_runs.c.id)
        .where(current_ocr_runs.c.item_image_id == image_id)
    ).one_or_none()
    if run is not None:
        distance = correction_distance(run.original_text, plain_text(payload))
        connection.execute(
            update(ocr_runs).where(ocr_runs.c.id == run.id).values(canonical_revision=revision, levenshtein_distance=distance)
        )
