"""`scribe batch`: what became of ingest batches."""

from dataclasses import asdict
from typing import Annotated
from uuid import UUID

import typer

from commands.output import JsonOption, load_settings, print_json, print_table
from scribe_pipeline.errors import Category, ScribeError

app = typer.Typer(help="Ingest batches.", no_args_is_help=True)


@app.command("list")
def list_batches(as_json: JsonOption = False) -> None:
    """List batches, newest first."""
    from resources import migrated_database
    from scribe_pipeline.ingest import list_batches as listed

    settings = load_settings()
    with migrated_database(settings).connect() as connection:
        rows = [asdict(batch) for batch in listed(connection)]
    if as_json:
        print_json(rows)
    elif rows:
        cells = [[*list(row.values())[:-1], f"{row['created_at']:%Y-%m-%d %H:%M}"] for row in rows]
        print_table(("batch", "item", "context", "files", "status", "created"), cells, may_be_cut=("item",))
    else:
        typer.echo(f"no batches in {settings.home}", err=True)


@app.command("show")
def show(batch_id: Annotated[str, typer.Argument(metavar="ID")], as_json: JsonOption = False) -> None:
    """Show a batch's files and their pages."""
    from commands.reports import page_json, print_pages
    from resources import migrated_database
    from scribe_pipeline.ingest import load_batch, report_batch

    try:
        key = UUID(batch_id)
    except ValueError:
        raise ScribeError(Category.INVALID_ARGUMENT, f"{batch_id} is no batch's id: scribe batch list shows them") from None
    with migrated_database(load_settings()).connect() as connection:
        load_batch(connection, key)
        pages = report_batch(connection, key)
    if as_json:
        print_json([page_json(page) for page in pages])
    else:
        print_pages(pages)
