"""`scribe batch`: what became of ingest batches."""

from dataclasses import asdict
from uuid import UUID

import typer

from commands.output import JsonOption, load_settings, print_json, print_table

app = typer.Typer(help="Ingest batches.", no_args_is_help=True)


@app.command("list")
def list_batches(as_json: JsonOption = False) -> None:
    """List batches, newest first."""
    from resources import migrated_database
    from scribe_pipeline.ingest import list_batches as listed

    with migrated_database(load_settings()).connect() as connection:
        rows = [asdict(batch) for batch in listed(connection)]
    if as_json:
        print_json(rows)
    else:
        print_table(("batch", "item", "files", "status", "created"), [list(row.values()) for row in rows])


@app.command("show")
def show(batch_id: UUID, as_json: JsonOption = False) -> None:
    """Show a batch's files and their pages."""
    from commands.reports import page_json, print_pages
    from resources import migrated_database
    from scribe_pipeline.ingest import load_batch, report_batch

    with migrated_database(load_settings()).connect() as connection:
        load_batch(connection, batch_id)
        pages = report_batch(connection, batch_id)
    if as_json:
        print_json([page_json(page) for page in pages])
    else:
        print_pages(pages)
