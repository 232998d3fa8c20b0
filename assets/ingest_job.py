"""The job that takes one ingest batch from files to drafts, and what it records of them for the UI.

However many pages a run does, it records one materialization an asset: the rows are in the database, an event is for people.
"""

import time
from dataclasses import dataclass
from uuid import UUID

import dagster as dg
from sqlalchemy import Engine

from assets.metadata import ingestion_metadata, segmentation_metadata, transcription_metadata
from assets.specs import INGESTED_IMAGES, SEGMENTED_PAGES, TRANSCRIBED_PAGES
from resources import BATCH_TAG, ENGINES_TAG, WORKSPACE_TAG, Progress, ingest_settings, process_tags
from scribe_pipeline.config import Settings
from scribe_pipeline.contexts import ContextSnapshot
from scribe_pipeline.engines import EnginePool, check_segmentor, check_transcriber
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.ingest import (
    Batch,
    RefusedFile,
    SegmentationSource,
    SegmentedPage,
    ValidationSource,
    open_batch,
    settle_batch,
)
from scribe_pipeline.jobs import TranscribedPage, TranscriptionSource, drain
from scribe_pipeline.pages import Image
from scribe_pipeline.storage import store_url

_MAX_PREVIEWS = 12


class BatchConfig(dg.Config):
    """Which batch a run works on."""

    batch_id: str


def run_config(batch: Batch) -> dict[str, object]:
    """Return what a run on the batch is given."""
    return {"ops": {"validate_files": {"config": {"batch_id": str(batch.id)}}}}


def run_tags(batch: Batch) -> dict[str, str]:
    """Return the tags that a run on the batch is found by."""
    return {BATCH_TAG: str(batch.id), WORKSPACE_TAG: batch.workspace}


@dataclass(frozen=True)
class BatchRun:
    """What the ops of a run hand on: the batch, how many runs had been asked for when this one began, and until when it claims.

    `claim_until` is on the monotonic clock of the one process that executes the run; `refusal` says why files had to wait,
    `unread` why pages have to.
    """

    batch_id: UUID
    generation: int
    claim_until: float
    refusal: ScribeError | None
    unread: ScribeError | None


@dg.op
def validate_files(
    context: dg.OpExecutionContext,
    config: BatchConfig,
    settings: dg.ResourceParam[Settings],
    database: dg.ResourceParam[Engine],
    pool: dg.ResourceParam[EnginePool],
    progress: dg.ResourceParam[Progress],
) -> BatchRun:
    """Check the batch's files before any model works, and store the good ones."""
    claim_until = time.monotonic() + settings.claim_seconds
    context.instance.add_run_tags(context.run_id, process_tags())
    batch = open_batch(database, UUID(config.batch_id))
    recipe = ContextSnapshot.from_text(batch.context_snapshot)
    check_segmentor(recipe.segmentation_model)
    unread: ScribeError | None = None
    try:
        check_transcriber(recipe.transcription_provider, recipe.transcription_model)
    except ScribeError as error:
        if error.category is not Category.UNAVAILABLE:
            raise
        unread = error  # lines can be found meanwhile, and another worker may read them
    images: list[Image] = []
    refused: list[RefusedFile] = []

    def ingested(image: Image) -> None:
        images.append(image)
        progress.ingested(image)

    def refuse(file: RefusedFile) -> None:
        refused.append(file)
        progress.refused(file)

    source = ValidationSource(ingest_settings(settings, database), batch.id, ingested, refuse, progress.further)
    drain([source], pool, settings.lease_seconds, claim_until - time.monotonic())
    if images or refused:
        metadata = ingestion_metadata(batch.id, images, refused)
        context.log_event(dg.AssetMaterialization(INGESTED_IMAGES, metadata=metadata))
    return BatchRun(batch.id, batch.dispatch_generation, claim_until, source.refusal, unread)


@dg.op
def draft_pages(
    context: dg.OpExecutionContext,
    run: BatchRun,
    settings: dg.ResourceParam[Settings],
    database: dg.ResourceParam[Engine],
    pool: dg.ResourceParam[EnginePool],
    progress: dg.ResourceParam[Progress],
) -> BatchRun:
    """Find the lines of each stored scan and read them; a page whose lines are known is read before the next is segmented."""
    segmented: list[SegmentedPage] = []
    transcribed: list[TranscribedPage] = []

    def on_segmented(page: SegmentedPage) -> None:
        segmented.append(page)
        progress.segmented(page)

    def on_transcribed(page: TranscribedPage) -> None:
        transcribed.append(page)
        progress.transcribed(page)

    reading = TranscriptionSource(database, store_url(settings), settings.lease_seconds, on_transcribed, run.batch_id)
    finding = SegmentationSource(
        ingest_settings(settings, database), run.batch_id, on_segmented, progress.refused, previews=_MAX_PREVIEWS
    )
    drain([reading, finding] if run.unread is None else [finding], pool, settings.lease_seconds, run.claim_until - time.monotonic())
    if segmented:
        context.log_event(dg.AssetMaterialization(SEGMENTED_PAGES, metadata=segmentation_metadata(run.batch_id, segmented)))
    if transcribed:
        context.log_event(dg.AssetMaterialization(TRANSCRIBED_PAGES, metadata=transcription_metadata(transcribed, run.batch_id)))
    if run.unread is not None:
        raise run.unread
    return run


@dg.op
def settle(context: dg.OpExecutionContext, run: BatchRun, database: dg.ResourceParam[Engine]) -> None:
    """End the batch if nothing of it is left to do, or ask for another run. Fail if there was no room for one of its files."""
    batch = settle_batch(database, run.batch_id, run.generation)
    context.add_output_metadata({"status": batch.status, "dispatch_generation": batch.dispatch_generation})
    if run.refusal is not None:
        raise run.refusal


@dg.job(
    executor_def=dg.in_process_executor,
    tags=ENGINES_TAG,
    description="Takes one ingest batch from files to drafts: validate, segment, transcribe. Claims for 20 minutes at most.",
)
def process_ingest_batch() -> None:
    """Validate, then segment and transcribe, then settle."""
    settle(draft_pages(validate_files()))
