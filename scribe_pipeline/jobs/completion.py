"""The transaction that turns a worker's reading into a draft: page, index, baseline, attempt, job and event, all or none."""

from collections.abc import Mapping

import uuid_utils.compat as uuid_utils
from sqlalchemy import Connection, Engine, func, insert, update
from sqlalchemy.dialects.postgresql import insert as upsert

from scribe_pipeline.contexts import ContextSnapshot
from scribe_pipeline.database import RELEASED, in_transaction, lock
from scribe_pipeline.database.tables import current_ocr_runs, item_images, ocr_runs, transcription_jobs
from scribe_pipeline.engines import LineText
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import EventType, record_events
from scribe_pipeline.jobs.queue import JobClaim, close_attempt, committed_revision, job_event, lost
from scribe_pipeline.pages import Author, Image, fill_lines, load_head, replace_page


def complete_job(
    engine: Engine,
    claim: JobClaim,
    image: Image,
    texts: Mapping[str, LineText],
    failures: Mapping[str, Category],
    skipped: str | None = None,
) -> int:
    """Commit what was read, by annotation id, and return the page's new revision.

    A page without lines completes too: `skipped` then says why nothing was read. What this claim has committed before is not
    committed again: its revision is returned. Raises ScribeError: `lease_lost` if another worker has taken over, `page_changed`
    if the page is no longer at the job's input revision. In both cases nothing is written.
    """
    return in_transaction(engine, lambda connection: _complete(connection, claim, image, texts, failures, skipped))


def _complete(
    connection: Connection,
    claim: JobClaim,
    image: Image,
    texts: Mapping[str, LineText],
    failures: Mapping[str, Category],
    skipped: str | None,
) -> int:
    held = lock(connection, {item_images: item_images.c.id == image.id, transcription_jobs: claim.fence})
    head = load_head(connection, image.id)
    if not held[transcription_jobs] and (done := committed_revision(connection, claim)) is not None:
        return done
    if not all(held.values()) or head is None:
        raise lost()
    (job,) = held[transcription_jobs]
    context = ContextSnapshot.from_text(claim.context_snapshot)
    engine_name = f"{context.transcription_provider}/{context.transcription_model}"
    revision = replace_page(
        connection, image, claim.input_revision, fill_lines(head.payload, texts), Author("ocr", engine_name, claim.job_id)
    )
    if revision is None:
        raise ScribeError(Category.PAGE_CHANGED, "the page has changed since the job was made")
    _keep_baseline(connection, claim, context, texts)
    close_attempt(connection, claim, "completed", result_revision=revision)
    finished_at = connection.execute(
        update(transcription_jobs)
        .where(claim.fence)
        .values(
            status="completed",
            result_revision=revision,
            total_segments=len(texts) + len(failures),
            completed_segments=len(texts),
            failed_segments=len(failures),
            passed=None if skipped else not failures,
            failures=sorted(f"line: {category.value}" for category in failures.values()),
            error=skipped,
            finished_at=func.clock_timestamp(),
            **RELEASED,
        )
        .returning(transcription_jobs.c.finished_at)
    ).scalar_one_or_none()
    if finished_at is None:
        raise lost()
    facts = {
        "itemId": str(image.item_id),
        "canvasUri": image.canvas_uri,
        "revision": revision,
        "attemptNumber": claim.attempt_number,
        "completedSegments": len(texts),
        "failedSegments": len(failures),
        "totalSegments": len(texts) + len(failures),
    }
    record_events(connection, [job_event(EventType.TRANSCRIPTION_COMPLETED, job, finished_at, facts)])
    return revision


def _keep_baseline(connection: Connection, claim: JobClaim, context: ContextSnapshot, texts: Mapping[str, LineText]) -> None:
    """Keep what the engine said as the image's baseline, if it has none; it holds the successful lines only."""
    run_id = uuid_utils.uuid7()
    pointed = connection.execute(
        upsert(current_ocr_runs)
        .values(item_image_id=claim.item_image_id, workspace_id=claim.workspace_id, ocr_run_id=run_id)
        .on_conflict_do_nothing(index_elements=[current_ocr_runs.c.item_image_id])
        .returning(current_ocr_runs.c.ocr_run_id)
    ).scalar_one_or_none()
    if pointed is not None:
        connection.execute(
            insert(ocr_runs).values(
                id=run_id,
                workspace_id=claim.workspace_id,
                item_image_id=claim.item_image_id,
                job_id=claim.job_id,
                context_id=context.context_id,
                provider=context.transcription_provider,
                model=context.transcription_model,
                original_text="".join(f"{text.value}\n" for text in texts.values()),
            )
        )
