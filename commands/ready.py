"""`scribe ready`: whether everything that the main job needs is there."""

from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from functools import partial
from threading import Thread

import typer
from rich.cells import cell_len, set_cell_size

from commands.output import JsonOption, load_settings, print_json
from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category, ScribeError

Check = Callable[[], object]

_READY = "ready"
# A probe of an engine with a key gives up after ten seconds; its client takes a while to load.
_PATIENCE = 30
_NO_ANSWER = f"there was no answer in {_PATIENCE} seconds"
_REGISTRY = "model registry"


def ready(as_json: JsonOption = False) -> None:
    """Check the database, the blob store, the mail server if there is to be one, and each engine that a context names.

    Exit 1 if one is not ready. Engines with keys are asked whether they know their model, which costs nothing. Registered models
    that no context names are listed too, but nothing depends on them.
    """
    settings = load_settings()
    # the folder is the one that everybody has; a bucket is named
    bucket = f" {settings.blob_url}" if (settings.blob_url or "").startswith("gs://") else ""
    states = {"database": _state(partial(_database, settings))}
    states[f"blob store{bucket}"] = _state(partial(_blobs, settings, images_known=states["database"] == _READY))
    if settings.smtp_url is not None or settings.smtp_failover_url is not None:
        states["mail"] = _state(partial(_mail, settings))
    if settings.failure_notify_enabled or settings.preserve_failure_notify_enabled:
        states["notices of failures"] = _state(partial(_notices, settings))
    spare: dict[str, str] = {}
    if states["database"] == _READY:
        in_use, others = _engines(settings)
        found = _states(in_use | others)
        if (refused := found.get(_REGISTRY, _READY)) != _READY:
            # an engine that needs it has nothing else to say
            unknown = f"not known without the {_REGISTRY}"
            found |= {name: unknown for name, state in found.items() if state == refused and name != _REGISTRY}
        states |= {name: found[name] for name in in_use}
        spare = {name: f"{found[name]} (no context names it)" for name in others}
    else:
        # the contexts, and so the engines, are known only with a database
        states["engines"] = "not known without the database"
    if as_json:
        print_json(states | spare)
    else:
        width = max(map(cell_len, states | spare))
        for name, state in (states | spare).items():
            # whole, however narrow the terminal: what is wrong often stands at the end
            typer.echo(f"{set_cell_size(name, width)}  {state}")
    if any(state != _READY for state in states.values()):
        raise typer.Exit(1)


def _state(check: Check) -> str:
    try:
        check()
    except ScribeError as error:
        return error.message
    return _READY


def _states(checks: dict[str, Check]) -> dict[str, str]:
    """Make all checks at once and wait for them for `_PATIENCE` seconds: resolving a name, for one, knows no time-out."""
    waiting: dict[str, Future[str]] = {name: Future() for name in checks}

    def make(check: Check, future: Future[str]) -> None:
        try:
            future.set_result(_state(check))
        except BaseException as error:
            future.set_exception(error)

    for name, check in checks.items():
        # no pool's, for which the command would wait at its end
        Thread(target=make, args=(check, waiting[name]), daemon=True).start()
    wait(waiting.values(), timeout=_PATIENCE)
    return {name: future.result() if future.done() else _NO_ANSWER for name, future in waiting.items()}


def _database(settings: Settings) -> None:
    from scribe_pipeline.database import current_database

    current_database(settings)


def _blobs(settings: Settings, *, images_known: bool) -> None:
    from scribe_pipeline.database import connect, database_url
    from scribe_pipeline.storage import check_not_bare, open_store, store_url

    store = open_store(store_url(settings))
    if images_known:
        # first, as the other check makes the folder
        check_not_bare(connect(database_url(settings)), store)
    store.check()


def _mail(settings: Settings) -> None:
    from scribe_pipeline.outcomes import open_mailer

    open_mailer(settings).check()


def _notices(settings: Settings) -> None:
    from scribe_pipeline.outcomes import notice_policies

    for family, policy in notice_policies(settings).items():
        if policy.enabled and policy.recipient is None:
            raise ScribeError(Category.FAILED_PRECONDITION, f"nobody is told of {family.kind} jobs: set {family.unset}")


def _engines(settings: Settings) -> tuple[dict[str, Check], dict[str, Check]]:
    """Return the checks of the engines that contexts name, and of the registered models that none does, by what they check."""
    from scribe_pipeline.contexts import all_contexts
    from scribe_pipeline.database import connect, database_url, in_transaction
    from scribe_pipeline.engines import probe_segmentor, probe_transcriber, registered_models

    in_use: dict[str, Check] = {}
    for context in in_transaction(connect(database_url(settings)), all_contexts):
        provider, model = context.transcription_provider, context.transcription_model
        in_use[f"segmentor {context.segmentation_model}"] = partial(probe_segmentor, context.segmentation_model)
        in_use[f"transcriber {provider}/{model}"] = partial(probe_transcriber, provider, model)
    if settings.models_file is not None:
        in_use[_REGISTRY] = registered_models
    registered: dict[str, Check] = {}
    with suppress(ScribeError):  # which the check of the registry itself tells
        for entry in registered_models().values():
            if entry.kind == "segmentor":
                registered[f"segmentor {entry.id}"] = partial(probe_segmentor, entry.id)
            else:
                registered[f"transcriber {entry.engine}/{entry.id}"] = partial(probe_transcriber, entry.engine, entry.id)
    return dict(sorted(in_use.items())), {name: registered[name] for name in sorted(registered.keys() - in_use.keys())}
