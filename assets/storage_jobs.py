"""The job that gives room back: reservations whose time is over, objects that nobody owns any more, writes that were broken off."""

import time

import dagster as dg
from pydantic import Field
from sqlalchemy import Engine

from resources import process_tags
from scribe_pipeline.storage import UPLOAD, BlobStore, drop_stray_copies, remove_due, upload_remover
from scribe_pipeline.workspaces import sweep_reservations

# No write takes so long; a younger temporary may be one that is under way.
_TEMPORARY_SECONDS = 3600


class CleanupConfig(dg.Config):
    """For how long a run takes on removals; the next one comes by in ten minutes."""

    seconds: float = Field(default=480, gt=0)


@dg.op
def remove_uploads(
    context: dg.OpExecutionContext,
    config: CleanupConfig,
    database: dg.ResourceParam[Engine],
    store: dg.ResourceParam[BlobStore],
) -> None:
    """Remove what is due until nothing is or the time is up. What cannot be removed waits, and makes the run fail at its end."""
    context.instance.add_run_tags(context.run_id, process_tags())
    end = time.monotonic() + config.seconds
    sweep_reservations(database)
    removals = remove_due(database, {UPLOAD: upload_remover(database, store)}, lambda: time.monotonic() >= end)
    counts = {
        "removed": removals.removed,
        "still_referred_to": removals.referenced,
        "to_be_tried_again": removals.deferred,
        "temporaries": store.sweep_temporaries(_TEMPORARY_SECONDS),
        "stray_copies": drop_stray_copies(database, store),
    }
    if removals.problem is not None:
        raise dg.Failure(f"{removals.deferred} could not be removed and will be tried again: {removals.problem}", metadata=counts)
    context.add_output_metadata(counts)


@dg.job(
    executor_def=dg.in_process_executor,
    description=(
        "Every ten minutes: removes scans and exports that were given up, and gives their room back. "
        "Fails if something cannot be removed; it is tried again, each time a little later, until it is gone."
    ),
)
def upload_cleanup() -> None:
    """Give room back."""
    remove_uploads()
