"""`scribe outbox`: what is still to be done outside the database. Nobody edits a row."""

from dataclasses import asdict
from typing import Annotated

import typer

from commands.output import JsonOption, load_settings, print_json, print_table, read_id
from scribe_pipeline.errors import Category, ScribeError

app = typer.Typer(help="Removals and deliveries that wait, are under way, or were given up.", no_args_is_help=True)

_LIST_COLUMNS = ("id", "kind", "status", "attempts", "next attempt", "lease until", "last error", "key")


@app.command("list")
def list_entries(
    kind: Annotated[str | None, typer.Option(help="Only one kind, such as webhook or upload_blob.")] = None,
    status: Annotated[str | None, typer.Option(help="Only what is so: staged, pending, processing, failed, delivered.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=100_000, help="How many at most.")] = 50,
    as_json: JsonOption = False,
) -> None:
    """List what the outboxes hold, newest first."""
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.events import OUTBOX_KINDS, OUTBOX_STATUSES, list_outboxes

    for value, known in ((kind, OUTBOX_KINDS), (status, OUTBOX_STATUSES)):
        if value is not None and value not in known:
            raise ScribeError(Category.INVALID_ARGUMENT, f"nothing in an outbox is ever {value!r}; it is one of {', '.join(known)}")
    engine = current_database(load_settings())
    entries = in_transaction(engine, lambda connection: list_outboxes(connection, kind=kind, status=status, limit=limit))
    if as_json:
        print_json([asdict(entry) for entry in entries])
    elif entries:
        rows = [
            (
                entry.id,
                entry.kind,
                entry.status,
                # an upload's removal has no last attempt
                entry.attempt_count if entry.kind == "upload_blob" else f"{entry.attempt_count}/{entry.max_attempts}",
                f"{entry.next_attempt_at:%Y-%m-%d %H:%M:%S}",
                entry.lease_until and f"{entry.lease_until:%H:%M:%S}",
                entry.last_error,
                entry.key,
            )
            for entry in entries
        ]
        print_table(_LIST_COLUMNS, rows, may_be_cut=("last error", "key"))
    else:
        typer.echo("nothing waits, or of that kind", err=True)


@app.command("show")
def show(entry_id: Annotated[str, typer.Argument(metavar="ID")], as_json: JsonOption = False) -> None:
    """Show all of one row."""
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.events import load_outbox_entry

    key = read_id(entry_id, "outbox row")
    entry = in_transaction(current_database(load_settings()), lambda connection: load_outbox_entry(connection, key))
    if as_json:
        print_json(asdict(entry))
        return
    for name, value in asdict(entry).items():
        if value is not None:
            typer.echo(f"{name:<16} {value}")
