"""What became of a batch, a line a page, as the rows say."""

from dataclasses import dataclass
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, and_, func, select, true

from scribe_pipeline.database.tables import (
    annotation_pages,
    ingest_batch_files,
    transcription_job_attempts,
    transcription_jobs,
)
from scribe_pipeline.ingest.names import page_label
from scribe_pipeline.pages import read_lines

files, pages, jobs, attempts = ingest_batch_files, annotation_pages, transcription_jobs, transcription_job_attempts


@dataclass(frozen=True)
class PageReport:
    """A file of a batch, or one page of it, and its page. Confidence is 0 to 1, seconds are those that the engines took."""

    file: str
    frame: int
    item_image_id: UUID | None
    revision: int | None
    status: str
    lines: int
    failed_lines: int
    mean_confidence: float | None
    error_category: str | None
    message: str | None
    first_words: str
    seconds: float

    @property
    def label(self) -> str:
        """What tables call the page."""
        return page_label(self.file, self.frame)


def report_batch(connection: Connection, batch_id: UUID) -> list[PageReport]:
    """Return a report for each file of the batch and each further page, in order. `status` is a job's, or else the file's.

    A page that is a draft stays one, whatever becomes of later jobs; before, its newest job counts.
    """
    telling = (
        select(jobs)
        .where(jobs.c.item_image_id == files.c.item_image_id)
        .order_by((jobs.c.status == "completed").desc(), jobs.c.created_at.desc(), jobs.c.id.desc())
        .limit(1)
        .lateral("telling")
    )
    seconds = func.extract("epoch", attempts.c.finished_at - attempts.c.started_at)
    rows = connection.execute(
        select(
            files,
            pages.c.revision,
            pages.c.payload,
            telling.c.status.label("job_status"),
            telling.c.failed_segments,
            telling.c.preflight,
            telling.c.error.label("job_error"),
            telling.c.error_category.label("job_category"),
            seconds.label("seconds"),
        )
        .outerjoin(pages, pages.c.item_image_id == files.c.item_image_id)
        .outerjoin(telling, true())
        .outerjoin(attempts, and_(attempts.c.job_id == telling.c.id, attempts.c.attempt_number == telling.c.attempt_count))
        .where(files.c.batch_id == batch_id)
        .order_by(files.c.sequence, files.c.frame)
    )
    return [_report(row) for row in rows]


def _report(row: Any) -> PageReport:
    lines = [] if row.payload is None else read_lines(row.payload)
    confidences = [line.confidence for line in lines if line.confidence is not None]
    segmentation = (row.preflight or {}).get("segmentation", {})
    return PageReport(
        file=row.filename,
        frame=row.frame,
        item_image_id=row.item_image_id,
        revision=row.revision,
        status=row.job_status or row.status,
        lines=len(lines),
        failed_lines=row.failed_segments or 0,
        mean_confidence=sum(confidences) / len(confidences) if confidences else None,
        error_category=row.job_category or row.error_category,
        message=row.job_error or row.error,
        first_words=next((line.text for line in lines if line.text), ""),
        seconds=segmentation.get("seconds", 0.0) + float(row.seconds or 0),
    )
