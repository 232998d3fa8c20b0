"""The command's entry: its subcommands, and how errors leave it."""

import logging
import os
import sys
import warnings

import typer
from sqlalchemy.exc import OperationalError

from commands import (
    batch,
    context,
    db,
    dev,
    dispatch,
    evaluate,
    ingest,
    item,
    job,
    outbox,
    outcomes,
    page,
    ready,
    run,
    storage,
    worker,
)
from scribe_pipeline.errors import Category, ScribeError

app = typer.Typer(
    name="scribe",
    help="Turns scans into transcriptions.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    add_completion=False,
)
app.command("run")(run.run)
# the list of commands on a narrow terminal has room for some 60 characters; their own help has the rest
app.command("ingest", short_help="Put scans into the queue and print the batch's id.")(ingest.ingest)
app.command("evaluate", short_help="Measure how well a context reads scans.")(evaluate.evaluate)
app.command("dev", short_help="Start the web UI, the daemon and the sensors.")(dev.dev)
app.command("worker", short_help="Work on transcription jobs until interrupted.")(worker.worker)
app.command("dispatch", short_help="Remove what is to be removed until interrupted.")(dispatch.dispatch)
app.command("ready", short_help="Check whether all that is needed is there.")(ready.ready)
app.add_typer(item.app, name="item")
app.add_typer(batch.app, name="batch")
app.add_typer(job.app, name="job")
app.add_typer(page.app, name="page")
app.add_typer(context.app, name="context")
app.add_typer(storage.app, name="storage")
app.add_typer(outbox.app, name="outbox", short_help="Removals and deliveries that wait or were given up.")
app.add_typer(outcomes.app, name="outcomes", short_help="What became of ended jobs, and what kinds of files fail.")
app.add_typer(db.app, name="db")


def main() -> None:
    """Run the command. A refused or failed operation ends with 1 and one line, wrong usage with 2."""
    _quiet()
    try:
        app()
    except ScribeError as error:
        _end(error.message, 2 if error.category is Category.INVALID_ARGUMENT else 1)
    except OperationalError:
        _end("the database went away; the same command goes on from here", 1)
    except UnicodeEncodeError:
        _end("an argument is no text in UTF-8", 2)
    except OSError as error:
        _end(f"{error.filename or 'an output'}: {error.strerror}", 1)


def _quiet() -> None:
    """Give libraries no say on the terminal: what they deprecate or retry is of no use to who scans pages."""
    warnings.simplefilter("ignore")
    logging.getLogger().setLevel(logging.ERROR)
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever called
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - open for as long as the process lives


def _end(message: str, code: int) -> None:
    print(f"scribe: {message}", file=sys.stderr)  # noqa: T201 - the one place where errors are told
    sys.exit(code)
