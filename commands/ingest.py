"""`scribe ingest`: a batch for the sensor to pick up."""

from commands.metadata import MetadataOption, read_metadata
from commands.output import load_settings
from commands.run import ContextOption, PathsArgument, WorkspaceOption


def ingest(
    paths: PathsArgument,
    context: ContextOption = None,
    workspace: WorkspaceOption = "default",
    metadata: MetadataOption = None,
) -> None:
    """Put scans into the queue and print the batch's id; `scribe dev` works on it."""
    import typer

    from scribe_pipeline.database import migrated_database
    from scribe_pipeline.ingest import collect, request_batch
    from scribe_pipeline.storage import open_store, store_url

    known = read_metadata(metadata)
    settings = load_settings()
    collection = collect(paths)
    if collection.passed_over:
        typer.echo(f"Passed over, as they are no images: {', '.join(collection.passed_over)}", err=True)
    open_store(store_url(settings)).check()
    batch = request_batch(
        migrated_database(settings),
        collection,
        workspace=workspace,
        context=context,
        metadata=known,
        max_attempts=settings.max_attempts,
        reservation_seconds=settings.reservation_seconds,
    )
    typer.echo(batch.id)
