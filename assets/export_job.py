"""The job that makes the exports of drafts and keeps them in the store: those of each page's newest revision that are not there."""

import time
from uuid import UUID

import dagster as dg
from pydantic import Field
from sqlalchemy import Engine

from assets.metadata import export_metadata
from assets.specs import PAGE_EXPORTS
from resources import process_tags
from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.exports import DerivedPage, due_exports
from scribe_pipeline.exports import derive_exports as derive_page
from scribe_pipeline.storage import BlobStore

# What is wrong with one page only, and stops no other.
_OF_ONE_PAGE = (Category.TOO_LARGE, Category.NOT_FOUND)


class ExportConfig(dg.Config):
    """Whose pages a run exports, how many at most, and for how long. Without a number of seconds, SCRIBE_CLAIM_SECONDS."""

    batch_id: str | None = None
    limit: int | None = Field(default=None, gt=0)
    claim_seconds: float | None = Field(default=None, gt=0)


@dg.op
def export_drafts(
    context: dg.OpExecutionContext,
    config: ExportConfig,
    settings: dg.ResourceParam[Settings],
    database: dg.ResourceParam[Engine],
    store: dg.ResourceParam[BlobStore],
) -> None:
    """Make what is missing, page by page, until nothing is or the time is up; what was made stays made."""
    context.instance.add_run_tags(context.run_id, process_tags())
    began = time.monotonic()
    derived: list[DerivedPage] = []
    refused: list[str] = []
    for image_id, revision in due_exports(database, None if config.batch_id is None else UUID(config.batch_id)):
        if len(derived) == config.limit or time.monotonic() - began >= (config.claim_seconds or settings.claim_seconds):
            break
        try:
            derived.append(derive_page(database, store, image_id, revision))
        except ScribeError as error:
            if error.category not in _OF_ONE_PAGE:
                raise
            refused.append(error.message)
    context.add_output_metadata({"pages": len(derived), "refused": len(refused)})
    if derived or refused:
        metadata = export_metadata(derived, refused, time.monotonic() - began)
        context.log_event(dg.AssetMaterialization(PAGE_EXPORTS, metadata=metadata))


@dg.job(
    executor_def=dg.in_process_executor,
    description=(
        "Makes the exports of drafts that are not there yet, of one batch or of all. "
        "Begins pages for SCRIBE_CLAIM_SECONDS, or what the run's configuration says instead."
    ),
)
def derive_exports() -> None:
    """Export drafts."""
    export_drafts()
