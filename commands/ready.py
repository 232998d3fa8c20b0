"""`scribe ready`: whether everything that the main job needs is there."""

from collections.abc import Callable

import typer

from commands.output import JsonOption, load_settings, print_json, print_table
from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category, ScribeError


def ready(as_json: JsonOption = False) -> None:
    """Check the database, the blob store and the engines of each context; exit 1 if one is not ready."""
    settings = load_settings()
    results = {name: _try(check, settings) for name, check in _CHECKS.items()}
    if as_json:
        print_json({name: problem or "ready" for name, problem in results.items()})
    else:
        print_table(("part", "state"), [(name, problem or "ready") for name, problem in results.items()])
    if any(results.values()):
        raise typer.Exit(1)


def _try(check: Callable[[Settings], None], settings: Settings) -> str | None:
    try:
        check(settings)
    except ScribeError as error:
        return error.message
    return None


def _database(settings: Settings) -> None:
    from resources import database_url
    from scribe_pipeline.database import connect, is_current

    if not is_current(connect(database_url(settings))):
        raise ScribeError(Category.FAILED_PRECONDITION, "the schema is not up to date: run scribe db upgrade")


def _blobs(settings: Settings) -> None:
    from resources import store_url
    from scribe_pipeline.storage import open_store

    open_store(store_url(settings)).check()


def _segmentors(settings: Settings) -> None:
    from scribe_pipeline.engines import check_segmentor

    check_segmentor("kraken-blla")


def _transcribers(settings: Settings) -> None:
    from scribe_pipeline.engines import check_transcriber

    check_transcriber("local", "PP-OCRv6_rec_small")


_CHECKS: dict[str, Callable[[Settings], None]] = {
    "database": _database,
    "blob store": _blobs,
    "segmentation": _segmentors,
    "transcription": _transcribers,
}
