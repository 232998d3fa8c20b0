"""Pages of a batch as a table and as JSON."""

from collections.abc import Sequence

import typer

from commands.output import print_table
from scribe_pipeline.ingest import PageReport

_COLUMNS = ("page", "lines", "failed", "confidence", "seconds", "status", "first words")
_JSON_FIELDS = (
    "file",
    "frame",
    "item_image_id",
    "revision",
    "status",
    "lines",
    "failed_lines",
    "mean_confidence",
    "error_category",
)
_MAX_WORDS = 40


def print_pages(pages: Sequence[PageReport]) -> None:
    """Print a row a page, and below why those that are no drafts are none."""
    print_table(_COLUMNS, [_row(page) for page in pages], may_be_cut=("page", "first words"))
    for page in pages:
        if page.message and page.status != "completed":
            typer.echo(f"{page.label}: {page.error_category or page.status}: {page.message}")


def page_json(page: PageReport) -> dict[str, object]:
    """Return what `--json` prints of a page."""
    return {name: getattr(page, name) for name in _JSON_FIELDS}


def _row(page: PageReport) -> tuple[object, ...]:
    words = page.first_words if len(page.first_words) <= _MAX_WORDS else f"{page.first_words[: _MAX_WORDS - 1]}…"
    confidence = None if page.mean_confidence is None else f"{page.mean_confidence:.2f}"
    return page.label, page.lines, page.failed_lines, confidence, f"{page.seconds:.1f}", page.status, words
