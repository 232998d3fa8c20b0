"""Validation and segmentation as work for the loop: a file becomes a stored image, an image a page with a job."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from uuid import UUID

import uuid_utils.compat as uuid_utils
from sqlalchemy import Connection, Engine

from scribe_pipeline.contexts import ContextSnapshot
from scribe_pipeline.database import RELEASED, DatabaseError, in_transaction, lock
from scribe_pipeline.database.tables import item_images, storage_quota_usage
from scribe_pipeline.engines import ImageFacts, ImageLimits, LineShape, Segmentation, image_extension, segment
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Channel, Event, EventType, record_events, wake
from scribe_pipeline.ingest.claims import (
    FileClaim,
    GivenUp,
    add_pages,
    claim_file,
    end_file_attempt,
    put_off_file,
    renew_file,
    stage_object,
    without_result,
    write_file,
)
from scribe_pipeline.ingest.collect import local_path
from scribe_pipeline.ingest.validation import CheckedPage, FurtherPage, PageSource, validate_page
from scribe_pipeline.jobs import insert_job
from scribe_pipeline.pages import Author, Image, build_page, canvas_uri, create_page, find_image, insert_image, load_image
from scribe_pipeline.storage import adopt_upload, new_object_key, open_store
from scribe_pipeline.workspaces import guards

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RefusedFile:
    """A file, or one page of it, that became no page, and the sentence that says why."""

    label: str
    category: Category
    message: str


@dataclass(frozen=True)
class SegmentedPage:
    """An image with its lines. `preview` is a small JPEG with the lines drawn, if one was asked for."""

    image: Image
    lines: tuple[LineShape, ...]
    seconds: float
    preview: bytes | None


@dataclass(frozen=True)
class IngestSettings:
    """What both kinds of work need: where rows and bytes are kept, and the house's limits."""

    engine: Engine
    store_url: str
    public_url: str
    lease_seconds: float
    max_attempts: int
    limits: ImageLimits
    reservation_seconds: float


class _FileUnit:
    """What validation and segmentation of one claimed file have in common."""

    task: Callable[..., Any]
    arguments: tuple[Any, ...]

    def __init__(self, settings: IngestSettings, claim: FileClaim) -> None:
        self._settings = settings
        self._claim = claim

    def renew(self) -> bool:
        """Move the file's lease."""
        return renew_file(self._settings.engine, self._claim)

    def progress(self, succeeded: int, failed: int) -> None:
        """A file has no lines to count."""


class ValidationSource:
    """A batch's files that are no image yet. `on_further` hears how many pages more a file turns out to have."""

    def __init__(
        self,
        settings: IngestSettings,
        batch_id: UUID,
        on_image: Callable[[Image], None],
        on_refused: Callable[[RefusedFile], None],
        on_further: Callable[[int], None] = lambda pages: None,
    ) -> None:
        self.settings = settings
        self.on_image = on_image
        self.on_refused = on_refused
        self.on_further = on_further
        self._batch_id = batch_id
        self.store = open_store(settings.store_url)
        self.refusal: ScribeError | None = None
        self._checked = False

    def claim(self, limit: int) -> list["ValidationUnit"]:
        """Claim a file, having removed what an earlier claim of it may have left in the store.

        A file for which there is no room is put off, and why is kept as `refusal`; others may have room. Raises ScribeError
        (unavailable) for a store that is not there.
        """
        settings = self.settings
        while claim := claim_file(settings.engine, self._batch_id, settings.lease_seconds, stored=False):
            if isinstance(claim, GivenUp):
                self.clear(claim.claim_name, claim.object_key)
                self.on_refused(RefusedFile(claim.label, Category.ATTEMPTS_EXHAUSTED, claim.message))
                continue
            if claim.object_key is not None:
                self.clear(claim.claim_name, claim.object_key)
            # what is taken out of a TIFF is one
            extension = image_extension(_first_bytes(claim.source_uri)) if claim.frame == 1 else "tiff"
            if extension is None:
                return [ValidationUnit(self, replace(claim, object_key=None))]
            key = new_object_key(claim.content_sha256, extension)
            try:
                self._check_store()
                return [ValidationUnit(self, stage_object(settings.engine, claim, key, settings.reservation_seconds))]
            except DatabaseError:
                raise
            except ScribeError as error:
                if error.category is Category.LEASE_LOST:
                    continue
                put_off_file(settings.engine, claim)
                if not self._checked:
                    raise
                self.refusal = error
        return []

    def _check_store(self) -> None:
        """See that the store is there: one that is away would be given an object after the other to remove."""
        if not self._checked:
            self.store.check()
            self._checked = True

    def clear(self, claim_name: str, object_key: str | None) -> None:
        """Remove what a claim left in the store that came to no image; what cannot be removed now, the cleanup outbox has."""
        try:
            self.store.remove_temporaries(claim_name)
            if object_key is not None:
                self.store.delete(object_key)
        except ScribeError as error:
            logger.warning("an object is left to be removed later: %s", error.message)


class ValidationUnit(_FileUnit):
    """One claimed file on its way into the store."""

    task = staticmethod(validate_page)

    def __init__(self, source: ValidationSource, claim: FileClaim) -> None:
        super().__init__(source.settings, claim)
        page = PageSource(claim.filename, claim.source_uri, claim.frame, claim.content_sha256)
        self.arguments = (page, source.settings.limits, source.settings.store_url, claim.object_key, claim.claim_name)
        self._source = source

    def finish(self, result: CheckedPage) -> None:
        """Add the image and put its file in line for segmentation, in one transaction; a file's further pages with it."""
        if isinstance(result.found, ScribeError):
            self._end(result.found.category, result.found.message, result.further)
            return
        claim, image = self._claim, self._image(result.found)

        def store(connection: Connection) -> None:
            lock(connection, {storage_quota_usage: guards(image.workspace_id)})
            # attempts are counted anew for the next stage
            write_file(connection, claim, RELEASED | {"status": "pending", "attempt_count": 0, "item_image_id": image.id})
            insert_image(connection, image)
            adopt_upload(connection, image.workspace_id, image.object_key)
            add_pages(connection, claim, result.further)

        try:
            in_transaction(self._settings.engine, store)
        except ScribeError as error:
            if error.category is not Category.LEASE_LOST:
                raise
            stored = in_transaction(self._settings.engine, partial(find_image, object_key=image.object_key))
            if stored is None:
                # whoever took over stores the scan under a name of its own
                self._source.clear(claim.claim_name, image.object_key)
                raise
            image = stored  # it was this very claim that stored it; the answer was lost
        self._source.on_further(len(result.further))
        self._source.on_image(image)

    def fail(self, category: Category, message: str) -> None:
        """Give the file back for a retry, or refuse it and leave nothing of it in the store."""
        self._end(category, without_result(message, self._claim) if category.retryable else message, ())

    def _end(self, category: Category, message: str, further: Sequence[FurtherPage]) -> None:
        failed = end_file_attempt(self._settings.engine, self._claim, category, message, further)
        self._source.clear(self._claim.claim_name, self._claim.object_key)
        if failed:
            self._source.on_further(len(further))
            self._source.on_refused(RefusedFile(self._claim.label, category, message))

    def _image(self, facts: ImageFacts) -> Image:
        claim, image_id = self._claim, uuid_utils.uuid7()
        return Image(
            id=image_id,
            workspace_id=claim.workspace_id,
            item_id=claim.item_id,
            sequence=claim.sequence,
            frame=claim.frame,
            label=claim.label,
            object_key=str(claim.object_key),
            sha256=claim.content_sha256,
            storage_bytes=claim.size_bytes,
            media_type=facts.media_type,
            width=facts.width,
            height=facts.height,
            canvas_uri=canvas_uri(self._settings.public_url, image_id),
        )


class SegmentationSource:
    """A batch's stored images that have no page yet. Lines are drawn for the first `previews` of them."""

    def __init__(
        self,
        settings: IngestSettings,
        batch_id: UUID,
        on_page: Callable[[SegmentedPage], None],
        on_refused: Callable[[RefusedFile], None],
        previews: int = 0,
    ) -> None:
        self.settings = settings
        self.on_page = on_page
        self.on_refused = on_refused
        self._batch_id = batch_id
        self._previews = previews

    def claim(self, limit: int) -> list["SegmentationUnit"]:
        """Claim a file with a stored image."""
        settings = self.settings
        while claim := claim_file(settings.engine, self._batch_id, settings.lease_seconds, stored=True):
            if isinstance(claim, GivenUp):
                self.on_refused(RefusedFile(claim.label, Category.ATTEMPTS_EXHAUSTED, claim.message))
                continue
            image = in_transaction(settings.engine, partial(load_image, image_id=claim.item_image_id))
            if image is None:
                continue  # its batch was canceled just now
            self._previews -= 1
            return [SegmentationUnit(self, claim, image, with_preview=self._previews >= 0)]
        return []


class SegmentationUnit(_FileUnit):
    """One claimed file whose image gets its page."""

    task = staticmethod(segment)

    def __init__(self, source: SegmentationSource, claim: FileClaim, image: Image, with_preview: bool) -> None:
        super().__init__(source.settings, claim)
        self._source = source
        self._image = image
        self._context = ContextSnapshot.from_text(claim.context_snapshot)
        self.arguments = (source.settings.store_url, image.object_key, self._context.segmentation_model, with_preview)

    def finish(self, result: Segmentation) -> None:
        """Write page revision 1, its event and its job, and end the file, in one transaction."""
        claim, image, settings = self._claim, self._image, self._settings

        def build(connection: Connection) -> None:
            write_file(connection, claim, RELEASED | {"status": "completed"})
            # whoever asks for a job meanwhile sees both, the page and its job, or neither
            lock(connection, {item_images: item_images.c.id == image.id})
            at = create_page(connection, image, build_page(image, result.lines), Author("ocr", result.engine))
            facts = {"segmentation": {"engine": result.engine, "seconds": round(result.seconds, 3), "lines": len(result.lines)}}
            insert_job(connection, image, claim.batch_id, self._context, 1, settings.max_attempts, preflight=facts)
            told = {"itemId": str(image.item_id), "canvasUri": image.canvas_uri, "revision": 1}
            record_events(connection, [Event(EventType.ANNOTATIONS_CREATED, image.workspace_id, image.id, at, told)])

        in_transaction(settings.engine, build)
        wake(settings.engine, Channel.JOBS)
        self._source.on_page(SegmentedPage(image, result.lines, result.seconds, result.preview))

    def fail(self, category: Category, message: str) -> None:
        """Give the file back for a retry, or end it; its stored image stays."""
        if end_file_attempt(self._settings.engine, self._claim, category, message):
            self._source.on_refused(RefusedFile(self._claim.label, category, message))


def _first_bytes(uri: str) -> bytes:
    try:
        with local_path(uri).open("rb") as file:
            return file.read(16)
    except OSError:
        return b""  # validation says what is wrong with it
