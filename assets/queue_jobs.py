"""The jobs that see to the transcription queue: one drains it when it has something due, one comes by every half hour."""

import dagster as dg
from pydantic import Field
from sqlalchemy import Engine

from assets.metadata import transcription_metadata
from assets.specs import TRANSCRIBED_PAGES
from resources import ENGINES_TAG, Progress, process_tags, report_dead_runs
from scribe_pipeline.config import Settings
from scribe_pipeline.engines import EnginePool
from scribe_pipeline.jobs import TranscribedPage, TranscriptionSource, drain
from scribe_pipeline.storage import store_url

_MAINTENANCE_SECONDS = 240


class QueueConfig(dg.Config):
    """How long a run takes on jobs; those that it has begun are finished. Without a number, as long as SCRIBE_CLAIM_SECONDS."""

    claim_seconds: float | None = Field(default=None, gt=0)


@dg.op(ins={"start": dg.In(dg.Nothing)})
def drain_queue(
    context: dg.OpExecutionContext,
    config: QueueConfig,
    settings: dg.ResourceParam[Settings],
    database: dg.ResourceParam[Engine],
    pool: dg.ResourceParam[EnginePool],
    progress: dg.ResourceParam[Progress],
) -> None:
    """Work on due jobs, those of vanished workers and delayed retries among them, until there are none or the time is up."""
    context.instance.add_run_tags(context.run_id, process_tags())
    pages: list[TranscribedPage] = []

    def on_page(page: TranscribedPage) -> None:
        pages.append(page)
        progress.transcribed(page)

    source = TranscriptionSource(database, store_url(settings), settings.lease_seconds, on_page)
    drain([source], pool, settings.lease_seconds, config.claim_seconds or settings.claim_seconds)
    context.add_output_metadata({"attempts": len(pages)})
    if pages:
        context.log_event(dg.AssetMaterialization(TRANSCRIBED_PAGES, metadata=transcription_metadata(pages)))


@dg.op(out=dg.Out(dg.Nothing))
def report_lost_runs(context: dg.OpExecutionContext) -> None:
    """Report runs failed whose process is gone, so that they hold no place in the queue of runs."""
    context.add_output_metadata({"runs": len(report_dead_runs(context.instance))})


@dg.job(
    executor_def=dg.in_process_executor,
    tags=ENGINES_TAG,
    description="Transcribes what is due in the queue, of all workspaces in turn. Claims for 20 minutes at most.",
)
def drain_transcription_queue() -> None:
    """Drain the queue."""
    drain_queue()


@dg.job(
    executor_def=dg.in_process_executor,
    tags=ENGINES_TAG,
    config={"ops": {"recover_queue": {"config": {"claim_seconds": _MAINTENANCE_SECONDS}}}},
    description="Every half hour: finds lost runs, takes over expired leases, does delayed retries, whatever wake-up was missed.",
)
def maintenance() -> None:
    """Report lost runs, then drain the queue for four minutes."""
    drain_queue.alias("recover_queue")(start=report_lost_runs())
