"""`scribe ready`: whether everything that the main job needs is there."""

from collections.abc import Callable
from functools import partial

import typer

from commands.output import JsonOption, load_settings, print_json, print_table
from scribe_pipeline.config import Settings
from scribe_pipeline.errors import ScribeError

_READY = "ready"


def ready(as_json: JsonOption = False) -> None:
    """Check the database, the blob store and each engine that a context names; exit 1 if one is not ready."""
    settings = load_settings()
    # the folder is the one that everybody has; a bucket is named
    bucket = f" {settings.blob_url}" if (settings.blob_url or "").startswith("gs://") else ""
    states = {"database": _state(partial(_database, settings)), f"blob store{bucket}": _state(partial(_blobs, settings))}
    if states["database"] == _READY:
        states |= _engines(settings)
    else:
        # the contexts, and so the engines, are known only with a database
        states["engines"] = "not known without the database"
    if as_json:
        print_json(states)
    else:
        print_table(("part", "state"), list(states.items()))
    if any(state != _READY for state in states.values()):
        raise typer.Exit(1)


def _state(check: Callable[[], None]) -> str:
    try:
        check()
    except ScribeError as error:
        return error.message
    return _READY


def _database(settings: Settings) -> None:
    from scribe_pipeline.database import current_database

    current_database(settings)


def _blobs(settings: Settings) -> None:
    from scribe_pipeline.storage import open_store, store_url

    open_store(store_url(settings)).check()


def _engines(settings: Settings) -> dict[str, str]:
    from scribe_pipeline.contexts import all_contexts
    from scribe_pipeline.database import connect, database_url, in_transaction
    from scribe_pipeline.engines import check_segmentor, check_transcriber

    checks: dict[str, Callable[[], None]] = {}
    for context in in_transaction(connect(database_url(settings)), all_contexts):
        provider, model = context.transcription_provider, context.transcription_model
        checks[f"segmentor {context.segmentation_model}"] = partial(check_segmentor, context.segmentation_model)
        checks[f"transcriber {provider}/{model}"] = partial(check_transcriber, provider, model)
    return {name: _state(check) for name, check in sorted(checks.items())}
