"""Transcription as work for the loop: claim a job, have its lines read, commit the draft."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Engine

from scribe_pipeline.contexts import ContextSnapshot
from scribe_pipeline.database import DatabaseError, in_transaction
from scribe_pipeline.engines import LineText, Reading, check_transcriber, transcribe, transcriber_version
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.jobs.completion import complete_job
from scribe_pipeline.jobs.queue import JobClaim, claim_jobs, end_attempt, record_preflight, record_progress, renew_claim
from scribe_pipeline.pages import Image, PageAnnotation, load_head, load_image, read_lines


@dataclass(frozen=True)
class TranscribedPage:
    """What became of one attempt: line counts and mean confidence (None without a line read), or the category of its failure."""

    image: Image
    lines: int
    failed_lines: int
    mean_confidence: float | None
    seconds: float
    error_category: Category | None = None


class TranscriptionSource:
    """The jobs of one batch, or all jobs; `pages` of them at most, if that is given.

    `on_page` hears what became of each attempt, after its commit.
    """

    def __init__(
        self,
        engine: Engine,
        store_url: str,
        lease_seconds: float,
        on_page: Callable[[TranscribedPage], None],
        batch_id: UUID | None = None,
        pages: int | None = None,
    ) -> None:
        self.engine = engine
        self.store_url = store_url
        self.on_page = on_page
        self._lease_seconds = lease_seconds
        self._batch_id = batch_id
        self._refusal: ScribeError | None = None
        self.pages_left = pages

    def claim(self, limit: int) -> list["TranscriptionUnit"]:
        """Claim jobs until some need an engine; those that do not are finished on the way.

        Raises ScribeError (unavailable), once the others are under way, for a job whose engine is not there.
        """
        if self._refusal is not None:
            raise self._refusal
        units: list[TranscriptionUnit] = []
        while not units and self._refusal is None:
            wanted = limit if self.pages_left is None else min(limit, self.pages_left)
            claims = claim_jobs(self.engine, self._lease_seconds, wanted, self._batch_id) if wanted else []
            if not claims:
                break
            if self.pages_left is not None:
                self.pages_left -= len(claims)
            try:
                units = [unit for claim in claims if (unit := self._unit(claim)) is not None]
            except BaseException:
                for claim in claims:
                    with suppress(ScribeError):
                        end_attempt(self.engine, claim, Category.INTERRUPTED)
                raise
        if not units and self._refusal is not None:
            raise self._refusal
        return units

    def _unit(self, claim: JobClaim) -> "TranscriptionUnit | None":
        """Return the work to be done, or None where there is none: the page has no lines, or cannot be transcribed."""
        image = in_transaction(self.engine, partial(load_image, image_id=claim.item_image_id))
        try:
            return self._prepare(claim, image)
        except DatabaseError:
            raise
        except ScribeError as error:
            if error.category is Category.LEASE_LOST:
                return None
            if error.category is Category.UNAVAILABLE:
                self._refusal = error
            category = error.category if error.category.stored else Category.INTERRUPTED
            try:
                end_attempt(self.engine, claim, category)
            except ScribeError as lost:
                if lost.category is not Category.LEASE_LOST:
                    raise
                return None  # its item was deleted just now
            if image is not None:
                self.on_page(TranscribedPage(image, 0, 0, None, 0, category))
            return None

    def _prepare(self, claim: JobClaim, image: Image | None) -> "TranscriptionUnit | None":
        """Check all that can be checked without an engine. None for a page without lines, which is complete as it is."""
        context = ContextSnapshot.from_text(claim.context_snapshot)
        head = in_transaction(self.engine, partial(load_head, image_id=claim.item_image_id))
        if image is None or head is None:
            raise ScribeError(Category.PAGE_UNAVAILABLE, "the page is gone")
        if head.revision != claim.input_revision:
            raise ScribeError(Category.PAGE_CHANGED, "the page has changed since the job was made")
        check_transcriber(context.transcription_provider, context.transcription_model)
        lines = read_lines(head.payload)
        facts = {
            "width": image.width,
            "height": image.height,
            "bytes": image.storage_bytes,
            "media_type": image.media_type,
            "segments": len(lines),
            "provider": context.transcription_provider,
            "model": context.transcription_model,
            "engine": transcriber_version(context.transcription_provider),
        }
        record_preflight(self.engine, claim, facts, len(lines))
        if len(lines) > context.segment_cap:
            raise ScribeError(Category.TOO_MANY_SEGMENTS, "the page has more lines than its context allows")
        if not lines:
            complete_job(self.engine, claim, image, {}, {}, skipped="skipped: no lines")
            self.on_page(TranscribedPage(image, 0, 0, None, 0))
            return None
        return TranscriptionUnit(self, claim, image, lines, context)


class TranscriptionUnit:
    """One claimed job and the lines that it reads."""

    task = staticmethod(transcribe)

    def __init__(
        self, source: TranscriptionSource, claim: JobClaim, image: Image, lines: list[PageAnnotation], context: ContextSnapshot
    ) -> None:
        self.arguments: tuple[Any, ...] = (
            source.store_url,
            image.object_key,
            context.transcription_provider,
            context.transcription_model,
            context.reading_options,
            tuple(line.shape for line in lines),
        )
        self._source = source
        self._claim = claim
        self._image = image
        self._lines = lines

    def renew(self) -> bool:
        """Move the job's lease."""
        return renew_claim(self._source.engine, self._claim)

    def progress(self, succeeded: int, failed: int) -> None:
        """Write the job's line counts."""
        record_progress(self._source.engine, self._claim, succeeded, failed)

    def finish(self, result: Reading) -> None:
        """Commit one result if any line was read; otherwise retry the page if that can help, or fail it."""
        results = dict(zip((line.annotation_id for line in self._lines), result.lines, strict=True))
        texts = {line: text for line, text in results.items() if isinstance(text, LineText)}
        failures = {line: category for line, category in results.items() if isinstance(category, Category)}
        if not texts:
            self.progress(0, len(failures))
            passing = [category for category in failures.values() if category.retryable]
            telling = passing or [category for category in failures.values() if category is not Category.NO_TEXT]
            self.fail(telling[0] if telling else Category.NO_TEXT, "no line could be read")
            return
        try:
            complete_job(self._source.engine, self._claim, self._image, texts, failures)
        except ScribeError as error:
            if error.category is not Category.PAGE_CHANGED:
                raise
            self.fail(error.category, error.message)
            return
        confidences = [text.confidence for text in texts.values() if text.confidence is not None]
        confidence = sum(confidences) / len(confidences) if confidences else None
        self._source.on_page(TranscribedPage(self._image, len(self._lines), len(failures), confidence, result.seconds))

    def fail(self, category: Category, message: str) -> None:
        """Close the attempt without a result. The job's own words for the category are stored, not `message`."""
        end_attempt(self._source.engine, self._claim, category)
        self._source.on_page(TranscribedPage(self._image, len(self._lines), len(self._lines), None, 0, category))
