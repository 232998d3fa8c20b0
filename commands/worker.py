"""`scribe worker`: a process that works on due transcription jobs, whoever asked for them."""

import itertools
import logging
import signal
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from commands.output import load_settings

if TYPE_CHECKING:
    from scribe_pipeline.jobs import TranscribedPage

_POLL_SECONDS = 2


def worker(
    once: Annotated[bool, typer.Option("--once", help="End when nothing is due.")] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="End after so many attempts.")] = None,
) -> None:
    """Work on transcription jobs until interrupted; a line on standard error tells of each attempt.

    SIGTERM and Ctrl-C have it give back at once what it holds.
    """
    from scribe_pipeline.database import current_database, database_url
    from scribe_pipeline.engines import EnginePool
    from scribe_pipeline.events import Channel, Listener
    from scribe_pipeline.jobs import TranscribedPage, TranscriptionSource, drain
    from scribe_pipeline.storage import store_url

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", force=True)
    settings = load_settings()
    engine = current_database(settings)
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    told = itertools.count()

    def tell(page: TranscribedPage) -> None:
        next(told)
        _tell(page)

    source = TranscriptionSource(engine, store_url(settings), settings.lease_seconds, tell, pages=limit)
    pool = EnginePool(settings.workers)
    listener = Listener(database_url(settings), Channel.JOBS)
    try:
        while not stopping.is_set():
            drain([source], pool, settings.lease_seconds, settings.claim_seconds, stopped=stopping.is_set)
            if once or source.pages_left == 0:
                break
            listener.wait(_POLL_SECONDS)
    finally:
        listener.close()
        pool.stop()
    typer.echo(f"attempts: {next(told)}", err=True)


def _tell(page: "TranscribedPage") -> None:
    if page.error_category is not None:
        typer.echo(f"{page.image.label}: the attempt failed ({page.error_category.value})", err=True)
        return
    confidence = "" if page.mean_confidence is None else f", confidence {page.mean_confidence:.2f}"
    typer.echo(f"{page.image.label}: {page.lines - page.failed_lines} of {page.lines} lines read{confidence}", err=True)
