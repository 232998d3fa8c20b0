"""The bars of the main job: where they begin, what they say while others work, and where they end."""

import io
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from rich.console import Console

from commands import progress
from scribe_pipeline.ingest import PageReport

BATCH = UUID(int=7)
WAITING = PageReport("a.png", 1, None, None, "pending", 0, 0, None, None, None, "", 0.0)
REFUSED = replace(WAITING, status="failed", error_category="damaged")
STORED = replace(WAITING, item_image_id=UUID(int=1), status="stored")
DRAFT = replace(STORED, revision=2, status="completed", lines=3)
FAILED = replace(STORED, revision=1, status="failed")


@pytest.mark.parametrize(
    ("begin", "end", "shown"),
    [
        ([WAITING, WAITING, REFUSED], [DRAFT, DRAFT, REFUSED], ["2/2", "2/2", "2/2"]),
        ([STORED, STORED], [DRAFT, FAILED], ["2/2", "2/2", "1/2"]),
        ([WAITING], [DRAFT, STORED], ["2/2", "1/2", "1/2"]),
    ],
)
def test_the_bars_end_where_the_batch_stands(
    monkeypatch: pytest.MonkeyPatch, begin: list[PageReport], end: list[PageReport], shown: list[str]
) -> None:
    """R87: what another worker has done counts as well, so that the bars agree with the table below them."""
    reports = iter([begin, end])
    monkeypatch.setattr(progress, "report_batch", lambda connection, batch_id: next(reports))
    engine = cast(Any, SimpleNamespace(connect=nullcontext))
    out = io.StringIO()
    with progress.progress_bars(Console(file=out, width=160), engine, BATCH) as bars:
        bars.waiting(51.2)
    lines = [line for line in out.getvalue().splitlines() if line.strip()]
    assert [line.split()[0] for line in lines] == ["ingest", "segment", "transcribe"]
    assert [next(part for part in line.split() if "/" in part) for line in lines] == shown
    assert "waiting up to 51 s: due for a retry, or held by another worker (taken over if it stays silent)" in lines[2]
