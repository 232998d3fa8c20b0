"""The command's entry: its subcommands, and how errors leave it."""

import sys
import warnings

import typer

from commands import batch, db, dev, ingest, ready, run
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
app.command("ingest")(ingest.ingest)
app.command("dev")(dev.dev)
app.command("ready")(ready.ready)
app.add_typer(batch.app, name="batch")
app.add_typer(db.app, name="db")


def main() -> None:
    """Run the command. A refused or failed operation ends with 1 and one line, wrong usage with 2."""
    # what libraries deprecate is of no use to who scans pages
    warnings.simplefilter("ignore")
    try:
        app()
    except ScribeError as error:
        print(f"scribe: {error.message}", file=sys.stderr)  # noqa: T201 - the one place where errors are told
        sys.exit(2 if error.category is Category.INVALID_ARGUMENT else 1)
