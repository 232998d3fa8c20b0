"""What commands print: JSON documents and tables on standard output, everything else on standard error."""

import getpass
import json
import socket
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

import typer
from pydantic import ValidationError
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category, ScribeError

if TYPE_CHECKING:
    from scribe_pipeline.events import AuditEntry, Operator

_PIPE_WIDTH = 160
# Between two columns of a table, and what is shown of one at least.
_GAP, _MIN_WIDTH = 2, 8

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of a table.")]

ReasonOption = Annotated[str, typer.Option(help="Why; it is kept in the audit.")]

_WHERE_IDS_ARE = {
    "batch": "scribe batch list",
    "job": "scribe job list",
    "image": "scribe job list --json",
    "item": "scribe item list",
    "rule": "scribe context rule list",
    "outbox row": "scribe outbox list",
}
_MAX_REASON = 1024
# What a variable must be, where Pydantic speaks of parsing.
_WANTED = {
    "bool_parsing": "it must be true or false",
    "int_parsing": "it must be a whole number",
    "float_parsing": "it must be a number",
}


def read_id(text: str, kind: str) -> UUID:
    """Return the id that a person gave. Raises ScribeError (invalid_argument)."""
    try:
        return UUID(text)
    except ValueError:
        raise ScribeError(Category.INVALID_ARGUMENT, f"{text} is no {kind}'s id: {_WHERE_IDS_ARE[kind]} tells them") from None


def operator(reason: str = "") -> "Operator":
    """Return who runs this command, as the machine knows him."""
    from scribe_pipeline.events import Operator

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        user = "unknown"
    # on one line, so that nobody's reason looks like another entry
    said = " ".join("".join(char if char.isprintable() else " " for char in reason).split())
    if len(said) > _MAX_REASON:
        raise ScribeError(Category.INVALID_ARGUMENT, f"the reason is longer than {_MAX_REASON:,} characters")
    return Operator(f"{user}@{socket.gethostname()}", said)


def load_settings() -> Settings:
    """Read the environment. Raises ScribeError that names the variable at fault."""
    try:
        return Settings()
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False)[0]
        name = "_".join(map(str, problem["loc"]))
        # one that has a name of its own is told by it
        variable = name if name.isupper() else f"SCRIBE_{name.upper()}"
        said = problem["msg"].removeprefix("Value error, ").replace("Input should be", "it must be")
        wanted = _WANTED.get(problem["type"], said)
        raise ScribeError(Category.INVALID_ARGUMENT, f"{variable} is not valid: {wanted}") from None


def error_console() -> Console:
    """Return a console on standard error for progress and remarks."""
    width = None if sys.stderr.isatty() else _PIPE_WIDTH
    return Console(stderr=True, width=width, highlight=False, markup=False, soft_wrap=True)


def print_json(document: object) -> None:
    """Print one JSON document."""
    sys.stdout.write(json.dumps(document, ensure_ascii=False, indent=2, default=str) + "\n")


def indented(document: str) -> str:
    """Return a JSON document by lines; as it is, if it is nested deeper than Python follows."""
    try:
        return json.dumps(json.loads(document), ensure_ascii=False, indent=2)
    except RecursionError:
        return document


def print_audit(entries: Sequence["AuditEntry"]) -> None:
    """Print what operators did, a line each."""
    for number, entry in enumerate(entries):
        why = f" ({entry.reason})" if entry.reason else ""
        before = "" if number else "\naudit\n"
        typer.echo(f"{before}{entry.created_at:%Y-%m-%d %H:%M:%S} {entry.actor}: {entry.action}{why}")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]], may_be_cut: Sequence[str] = ()) -> None:
    """Print a table, a line a row; None shows as nothing. On a narrow terminal the columns named are cut, and no others."""
    console = Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, markup=False, highlight=False)
    cells = [["" if cell is None else " ".join(str(cell).splitlines()) for cell in row] for row in rows]
    widths = {
        column: max(cell_len(text) for text in [column, *(row[number] for row in cells)]) for number, column in enumerate(columns)
    }
    # what is left by the others, and by the gaps, is shared: the narrower a column, the less of it is cut
    room = console.width - _GAP * len(columns) - sum(width for column, width in widths.items() if column not in may_be_cut)
    for left, column in zip(range(len(may_be_cut), 0, -1), sorted(may_be_cut, key=widths.__getitem__), strict=True):
        widths[column] = min(widths[column], max(_MIN_WIDTH, room // left))
        room -= widths[column]
    for number, row in enumerate([list(columns), *cells]):
        line = Text(style="" if number else "bold")
        for cell, width in zip(row, widths.values(), strict=True):
            shown = Text(cell)
            shown.truncate(width, overflow="ellipsis", pad=True)
            line.append_text(shown).append(" " * _GAP)
        line.rstrip()
        # what must stay whole may need more than the terminal has, which then breaks the line by itself
        console.print(line, soft_wrap=True)
