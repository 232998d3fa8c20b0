"""`scribe batch`: what became of ingest batches."""

from dataclasses import asdict
from typing import Annotated

import typer

from commands.output import JsonOption, ReasonOption, load_settings, operator, print_audit, print_json, print_table, read_id

app = typer.Typer(help="Ingest batches.", no_args_is_help=True)

BatchArgument = Annotated[str, typer.Argument(metavar="ID")]


@app.command("list")
def list_batches(as_json: JsonOption = False) -> None:
    """List batches, newest first."""
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.ingest import list_batches as listed

    settings = load_settings()
    rows = [asdict(batch) for batch in in_transaction(current_database(settings), listed)]
    if as_json:
        print_json(rows)
    elif rows:
        cells = [[*list(row.values())[:-1], f"{row['created_at']:%Y-%m-%d %H:%M}"] for row in rows]
        print_table(("batch", "item", "context", "files", "status", "created"), cells, may_be_cut=("item",))
    else:
        typer.echo(f"no batches in {settings.home}", err=True)


@app.command("show")
def show(batch_id: BatchArgument, as_json: JsonOption = False) -> None:
    """Show a batch's files and their pages."""
    from commands.reports import page_json, print_pages
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.events import read_audit
    from scribe_pipeline.ingest import load_batch, report_batch

    key = read_id(batch_id, "batch")
    engine = current_database(load_settings())
    in_transaction(engine, lambda connection: load_batch(connection, key))
    pages = in_transaction(engine, lambda connection: report_batch(connection, key))
    if as_json:
        print_json([page_json(page) for page in pages])
    else:
        print_pages(pages)
        print_audit(in_transaction(engine, lambda connection: read_audit(connection, f"batch {key}")))


@app.command("cancel")
def cancel(batch_id: BatchArgument, reason: ReasonOption = "") -> None:
    """Cancel an open batch with all that is open of it; pages that are there stay, and no worker writes to them any more."""
    from scribe_pipeline.database import current_database
    from scribe_pipeline.ingest import cancel_batch

    changed = cancel_batch(current_database(load_settings()), read_id(batch_id, "batch"), operator(reason))
    typer.echo("canceled" if changed else "it was canceled before")
