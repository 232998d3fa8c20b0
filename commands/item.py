"""`scribe item`: what has been ingested, and its deletion."""

from dataclasses import asdict
from typing import Annotated

import typer

from commands.output import (
    JsonOption,
    ReasonOption,
    load_settings,
    operator,
    print_json,
    print_table,
    read_id,
)

app = typer.Typer(help="Items: what was ingested together, with all its pages.", no_args_is_help=True)

ItemArgument = Annotated[str, typer.Argument(metavar="ID")]


@app.command("list")
def list_items(as_json: JsonOption = False) -> None:
    """List items, newest first."""
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.ingest import list_items as listed
    from scribe_pipeline.workspaces import in_words

    settings = load_settings()
    items = in_transaction(current_database(settings), listed)
    if as_json:
        print_json([asdict(item) for item in items])
    elif items:
        rows = [
            (item.id, item.name, item.workspace, item.images, in_words(item.bytes), f"{item.created_at:%Y-%m-%d %H:%M}")
            for item in items
        ]
        print_table(("item", "name", "workspace", "images", "scans", "created"), rows, may_be_cut=("name",))
    else:
        typer.echo(f"no items in {settings.home}", err=True)


@app.command("show")
def show(item_id: ItemArgument, as_json: JsonOption = False) -> None:
    """Show an item with its images and where each of them stands."""
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.ingest import load_item
    from scribe_pipeline.workspaces import in_words

    key = read_id(item_id, "item")
    detail = in_transaction(current_database(load_settings()), lambda connection: load_item(connection, key))
    if as_json:
        print_json(asdict(detail))
        return
    for name, value in {"item": detail.item.name, "workspace": detail.item.workspace, "batch": detail.batch_id}.items():
        if value is not None:
            typer.echo(f"{name:<10} {value}")
    for field, said in detail.metadata.items():
        typer.echo(f"{'metadata':<10} {field} = {said}")
    if not detail.images:
        return
    typer.echo("")
    rows = [(image.id, image.label, image.stage, image.revision, in_words(image.bytes)) for image in detail.images]
    print_table(("image", "page", "stage", "revision", "scan"), rows, may_be_cut=("page",))


@app.command("delete")
def delete(item_id: ItemArgument, reason: ReasonOption = "") -> None:
    """Delete an item with its pages, their revisions and jobs; no worker writes to it any more.

    Its scans take up room until they are removed, which `scribe dispatch` does.
    """
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.ingest import delete_item, load_item
    from scribe_pipeline.workspaces import in_words

    key, engine = read_id(item_id, "item"), current_database(load_settings())
    item = in_transaction(engine, lambda connection: load_item(connection, key)).item
    delete_item(engine, key, operator(reason))
    typer.echo(f"deleted {item.name}, images: {item.images}; {in_words(item.bytes)} wait to be removed")
