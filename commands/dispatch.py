"""`scribe dispatch`: a process that does what the outboxes ask for, whoever put it there."""

import logging
import signal
import threading
import time
from math import inf
from typing import Annotated

import typer

from commands.output import load_settings
from scribe_pipeline.errors import Category, ScribeError

_POLL_SECONDS = 2
# A writer that is alive has finished its temporary file long before.
_TEMPORARY_SECONDS = 3600


def dispatch(once: Annotated[bool, typer.Option("--once", help="End when nothing is due.")] = False) -> None:
    """Remove what is to be removed, and take back what was reserved and never used, until interrupted.

    A line on standard error tells of each pass that did something.
    """
    from scribe_pipeline.database import DatabaseError, current_database
    from scribe_pipeline.storage import UPLOAD, Remover, drop_stray_copies, open_store, remove_due, store_url, upload_remover
    from scribe_pipeline.workspaces import sweep_reservations

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s", force=True)
    settings = load_settings()
    engine = current_database(settings)
    store = open_store(store_url(settings))
    stopping = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopping.set())
    away: set[str] = set()

    def tell_once(who: str, problem: str) -> None:
        if who not in away:
            typer.echo(problem, err=True)
        away.add(who)

    def telling(remove_upload: Remover) -> Remover:
        def remove(key: str) -> None:
            try:
                remove_upload(key)
            except ScribeError as error:
                if error.category is Category.UNAVAILABLE:
                    tell_once("store", error.message)
                raise
            away.discard("store")

        return remove

    def clear_up() -> None:
        try:
            store.sweep_temporaries(_TEMPORARY_SECONDS)
            drop_stray_copies(engine, store)
        except ScribeError as error:
            if error.category is not Category.UNAVAILABLE:
                raise
            tell_once("store", error.message)

    cleared_up = -inf
    while not stopping.is_set():
        if time.monotonic() - cleared_up >= _TEMPORARY_SECONDS:
            clear_up()
            cleared_up = time.monotonic()
        done: dict[str, int] = {}
        try:
            removals = remove_due(engine, {UPLOAD: telling(upload_remover(engine, store))}, stopping.is_set)
            done = {
                "removed": removals.removed,
                "referred to after all": removals.referenced,
                "given up": removals.failed,
                "reservations taken back": sweep_reservations(engine),
            }
            if "store" not in away:
                done[f"to be tried again ({removals.problem})"] = removals.deferred
            away.discard("database")
        except DatabaseError as error:
            if once or error.category is not Category.UNAVAILABLE:
                raise
            tell_once("database", error.message)
        if any(done.values()):
            typer.echo(", ".join(f"{what}: {count}" for what, count in done.items() if count), err=True)
        if once and ("store" in away or not any(done.values())):
            break
        if not once:
            time.sleep(_POLL_SECONDS)
    if "store" in away and once:
        raise typer.Exit(1)
