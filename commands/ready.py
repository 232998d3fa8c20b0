"""`scribe ready`: whether everything that the main job needs is there."""

from collections.abc import Callable

import typer

from commands.output import JsonOption, load_settings, print_json, print_table
from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category, ScribeError


def ready(as_json: JsonOption = False) -> None:
    """Check the database, the blob store and the engines of each context; exit 1 if one is not ready."""
    settings = load_settings()
    results: dict[str, str | None] = {}
    for name, check in _CHECKS.items():
        # the contexts, and so the engines, are known only with a database
        blocked = name == "engines" and results["database"] is not None
        results[name] = "not known without the database" if blocked else _try(check, settings)
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


def _engines(settings: Settings) -> None:
    from resources import database_url
    from scribe_pipeline.contexts import all_contexts
    from scribe_pipeline.database import connect
    from scribe_pipeline.engines import check_segmentor, check_transcriber

    with connect(database_url(settings)).connect() as connection:
        for context in all_contexts(connection):
            check_segmentor(context.segmentation_model)
            check_transcriber(context.transcription_provider, context.transcription_model)


_CHECKS: dict[str, Callable[[Settings], None]] = {"database": _database, "blob store": _blobs, "engines": _engines}
