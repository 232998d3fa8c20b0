"""`scribe run`: the main job, from files to a table of drafts."""

import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from sqlalchemy import Engine

from commands.metadata import MetadataOption, read_metadata
from commands.output import JsonOption, error_console, load_settings, print_json
from scribe_pipeline.errors import Category, ScribeError

if TYPE_CHECKING:
    from commands.progress import BarProgress
    from scribe_pipeline.contexts import ContextSnapshot
    from scribe_pipeline.ingest import Batch

_POLL_SECONDS = 0.5
_REMOVAL_SECONDS = 5
INTERRUPTED = 130
_INTERRUPTS = ("DagsterExecutionInterruptedError", "KeyboardInterrupt")

PathsArgument = Annotated[list[Path], typer.Argument(metavar="PATH...", help="Scans, or folders of scans.")]
ContextOption = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="How the pages are read, such as letter or newspaper; scribe context list tells them."),
]
WorkspaceOption = Annotated[str, typer.Option(help="Whose pages they are.")]


def run(
    paths: PathsArgument,
    context: ContextOption = None,
    workspace: WorkspaceOption = "default",
    metadata: MetadataOption = None,
    export: Annotated[Path | None, typer.Option(metavar="DIR", help="Write each page here, in every format.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Start anew even if these files were run before.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Turn scans into draft transcriptions.

    The same files again finish what was interrupted and show what is done.
    """
    from commands.progress import progress_bars
    from commands.reports import page_json, print_pages
    from resources import dagster_instance, report_dead_runs
    from scribe_pipeline.database import database_url, migrated_database
    from scribe_pipeline.exports import check_folder, write_exports
    from scribe_pipeline.ingest import collect, report_batch, request_batch
    from scribe_pipeline.storage import open_store, store_url

    started = time.monotonic()
    known = read_metadata(metadata)
    console = error_console()
    settings = load_settings()
    collection = collect(paths)
    if collection.passed_over:
        console.print(f"Passed over, as they are no images: {', '.join(collection.passed_over)}")
    if export is not None:
        check_folder(export)
    open_store(store_url(settings)).check()
    engine = migrated_database(settings)
    _remove_due(settings, engine)
    batch = request_batch(
        engine,
        collection,
        workspace=workspace,
        context=context,
        metadata=known,
        max_attempts=settings.max_attempts,
        reservation_seconds=settings.reservation_seconds,
        again=again,
        check=_check_engines,
    )
    batch_was_over = batch.finished
    console.print(f"Batch {batch.id}, files: {len(collection.files)}")
    with dagster_instance(settings, database_url(settings)) as instance:
        report_dead_runs(instance)
        if not batch.finished:
            try:
                with progress_bars(console, engine, batch.id) as progress:
                    batch = _work(settings, instance, engine, batch, progress)
            except KeyboardInterrupt:
                console.print("scribe: interrupted; the same command goes on from here")
                raise typer.Exit(INTERRUPTED) from None
    with engine.connect() as connection:
        pages = report_batch(connection, batch.id)
    if as_json:
        print_json([page_json(page) for page in pages])
    else:
        print_pages(pages)
    drafts = sum(page.status == "completed" for page in pages)
    took = "as they were before" if batch_was_over else f"in {time.monotonic() - started:.0f} s"
    console.print(f"{drafts} of {len(pages)} pages are drafts, {took}")
    if export is not None:
        committed = {page.item_image_id: page.revision for page in pages if page.item_image_id and page.revision}
        written = write_exports(engine, export, committed)
        console.print(f"Wrote {len(written)} files to {export}")
    _remove_due(settings, engine)
    if drafts < len(pages):
        if batch.status == "canceled":
            console.print("The batch was canceled: the same command starts anew")
        else:
            console.print("Mend or leave out the others; with --again the same command reads all files anew, as new pages")
        raise typer.Exit(1)


def _check_engines(context: "ContextSnapshot") -> None:
    """See that what reads the pages is registered and has its key, rather than segment pages first that nobody here can read."""
    from scribe_pipeline.engines import check_segmentor, check_transcriber

    check_segmentor(context.segmentation_model)
    check_transcriber(context.transcription_provider, context.transcription_model)


def _work(settings: Any, instance: Any, engine: Engine, batch: "Batch", progress: "BarProgress") -> "Batch":
    """Execute the Dagster job until the batch is over, waiting for leases of workers that vanished to run out."""
    from dagster_postgres.utils import DagsterPostgresException

    from assets import run_config, run_tags
    from definitions import build_defs
    from resources import process_tags
    from scribe_pipeline.engines import EnginePool
    from scribe_pipeline.ingest import load_batch, seconds_until_due

    pool = EnginePool(settings.workers)
    try:
        job = build_defs(settings=settings, database=engine, pool=pool, progress=progress).resolve_job_def("process_ingest_batch")
        while not batch.finished:
            with engine.connect() as connection:
                wait = seconds_until_due(connection, batch.id)
            if wait:
                progress.waiting(wait)
                time.sleep(min(wait, _POLL_SECONDS))
            else:
                result = job.execute_in_process(
                    instance=instance,
                    run_config=run_config(batch) | {"loggers": {"console": {"config": {"log_level": "CRITICAL"}}}},
                    tags=run_tags(batch) | process_tags(),
                    raise_on_error=False,
                )
                if not result.success:
                    raise _failure(result)
            with engine.connect() as connection:
                batch = load_batch(connection, batch.id)
    except DagsterPostgresException:
        raise ScribeError(Category.UNAVAILABLE, "the database went away; the same command goes on from here") from None
    finally:
        pool.stop()
    return batch


def _remove_due(settings: Any, engine: Engine) -> None:
    """Remove what is to be removed, so that a house without a dispatcher has room again; what does not go now, waits."""
    from scribe_pipeline.storage import UPLOAD, open_store, remove_due, store_url, upload_remover

    until = time.monotonic() + _REMOVAL_SECONDS
    with suppress(ScribeError):
        remover = upload_remover(engine, open_store(store_url(settings)))
        remove_due(engine, {UPLOAD: remover}, lambda: time.monotonic() > until)


def _failure(result: Any) -> BaseException:
    """Return why a run failed: an interrupt, or an error with one line, our own sentence where there is one."""
    errors = []
    for event in result.all_events:
        error = getattr(event.event_specific_data, "error", None)
        while error is not None:
            errors.append(error)
            error = error.cause
    if any(error.cls_name in _INTERRUPTS for error in errors):
        return KeyboardInterrupt()
    if errors:
        return ScribeError(Category.UNAVAILABLE, str(errors[-1].message).strip().split("\n")[0].partition(": ")[2])
    return ScribeError(Category.UNAVAILABLE, f"the Dagster run {result.run_id} failed")
