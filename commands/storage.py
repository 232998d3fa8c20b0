"""`scribe storage`: how much room there is, and whether rows and objects agree."""

from dataclasses import asdict
from typing import Annotated

import typer

from commands.output import JsonOption, ReasonOption, load_settings, operator, print_json, print_table
from scribe_pipeline.config import read_size
from scribe_pipeline.errors import Category, ScribeError

app = typer.Typer(help="Room for scans, and whether all is there.", no_args_is_help=True)

_USAGE_COLUMNS = ("workspace", "limit", "used", "to be removed", "reserved", "free", "exports")
_MAX_LIMIT = 2**60


@app.command("usage")
def usage(as_json: JsonOption = False) -> None:
    """Show how much each workspace and all together may hold, hold, and have been promised. Exports do not count."""
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.storage import workspace_storage
    from scribe_pipeline.workspaces import in_words

    held = in_transaction(current_database(load_settings()), workspace_storage)
    if as_json:
        print_json([asdict(one.quota) | {"free_bytes": one.quota.free_bytes, "export_bytes": one.export_bytes} for one in held])
        return
    rows = []
    for one in held:
        quota = one.quota
        sizes = (quota.limit_bytes, quota.used_bytes, quota.pending_bytes, quota.reserved_bytes, quota.free_bytes, one.export_bytes)
        rows.append((quota.workspace or "(all)", *map(in_words, sizes)))
    print_table(_USAGE_COLUMNS, rows, may_be_cut=("workspace",))


@app.command("audit")
def audit(as_json: JsonOption = False) -> None:
    """Look for rows that do not agree, and for objects without a row or rows without their object; exit 1 if there are any.

    It changes nothing, and may be run while others work. Of each kind the first thousand are told.
    """
    from scribe_pipeline.database import current_database
    from scribe_pipeline.storage import audit_storage, open_store, store_url

    settings = load_settings()
    findings = audit_storage(current_database(settings), open_store(store_url(settings)))
    if as_json:
        print_json([asdict(finding) for finding in findings])
    else:
        for finding in findings:
            typer.echo(f"{finding.check}: {finding.subject}{f' ({finding.detail})' if finding.detail else ''}")
    if findings:
        raise typer.Exit(1)
    typer.echo("nothing is wrong", err=True)


@app.command("limit")
def limit(
    size: Annotated[str, typer.Argument(metavar="SIZE", help="Such as 50GiB, 800MB, or a number of bytes.")],
    workspace: Annotated[str | None, typer.Option(help="Whose limit it is; without it, that of all together.")] = None,
    reason: ReasonOption = "",
) -> None:
    """Change how much may be held. What is stored stays, be it more than that."""
    from scribe_pipeline.database import current_database
    from scribe_pipeline.workspaces import in_words, set_limit

    wanted = _bytes(size)
    set_limit(current_database(load_settings()), workspace, wanted, operator(reason))
    typer.echo(f"{f'the workspace {workspace}' if workspace else 'all workspaces together'} may hold {in_words(wanted)}")


def _bytes(size: str) -> int:
    try:
        wanted = read_size(size)
    except ValueError as error:
        raise ScribeError(Category.INVALID_ARGUMENT, str(error)) from None
    if wanted > _MAX_LIMIT:
        raise ScribeError(Category.INVALID_ARGUMENT, f"{size} is more than a limit may be: 1,048,576 TiB")
    return wanted
