"""Progress as bars: of the main job one a stage, of anything else one of pages."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column
from sqlalchemy import Engine

from scribe_pipeline.ingest import PageReport, RefusedFile, SegmentedPage, report_batch
from scribe_pipeline.jobs import TranscribedPage
from scribe_pipeline.pages import Image


@contextmanager
def progress_bars(console: Console, engine: Engine, batch_id: UUID) -> Iterator["BarProgress"]:
    """Show a bar a stage that begins and ends where the batch stands, whoever has worked on it."""

    def pages() -> list[PageReport]:
        with engine.connect() as connection:
            return report_batch(connection, batch_id)

    with _bars(console) as bars:
        progress = BarProgress(bars, pages())
        yield progress
        progress.set(pages())


@contextmanager
def page_bar(console: Console, name: str, pages: int) -> Iterator["PageBar"]:
    """Show one bar for so many pages."""
    with _bars(console) as bars:
        yield PageBar(bars, bars.add_task(name, total=pages, note=""))


def _bars(console: Console) -> Bars:
    return Bars(
        TextColumn("{task.description:<12}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}", table_column=Column(no_wrap=True, overflow="ellipsis")),
        console=console,
    )


class PageBar:
    """One bar, which every page moves."""

    def __init__(self, bars: Bars, task: TaskID) -> None:
        self._bars = bars
        self._task = task

    def done(self, note: str) -> None:
        """Move the bar."""
        self._bars.update(self._task, advance=1, note=note)

    def failed(self, message: str) -> None:
        """Say why, and move the bar."""
        self._bars.console.print(f"Failed: {message}")
        self._bars.update(self._task, advance=1)


class BarProgress:
    """Progress as bars; on a terminal they move, elsewhere their last state is printed."""

    def __init__(self, bars: Bars, pages: list[PageReport]) -> None:
        self._bars = bars
        self._stages = [bars.add_task(name, total=0, note="") for name in ("ingest", "segment", "transcribe")]
        self._ingest, self._segment, self._transcribe = self._stages
        self.set(pages)

    def set(self, pages: list[PageReport]) -> None:
        """Move all bars to where these pages stand."""
        self._total = len(pages) - sum(page.status == "failed" and page.item_image_id is None for page in pages)
        stored = sum(page.item_image_id is not None for page in pages)
        segmented = sum(page.revision is not None for page in pages)
        drafts = sum(page.status == "completed" for page in pages)
        for stage, done in zip(self._stages, (stored, segmented, drafts), strict=True):
            self._bars.update(stage, total=self._total, completed=done)

    def ingested(self, image: Image) -> None:
        """Move the first bar."""
        self._bars.update(self._ingest, advance=1, note=image.label)

    def further(self, pages: int) -> None:
        """Expect so many pages more."""
        self._expect(pages)

    def refused(self, file: RefusedFile) -> None:
        """Say why, and expect one page less."""
        self._bars.console.print(f"Refused: {file.label}: {file.message}")
        self._expect(-1)

    def _expect(self, more: int) -> None:
        self._total += more
        for task in self._bars.tasks:
            self._bars.update(task.id, total=max(self._total, task.completed))

    def segmented(self, page: SegmentedPage) -> None:
        """Move the second bar."""
        self._bars.update(self._segment, advance=1, note=f"{page.image.label}: {len(page.lines)} lines")

    def transcribed(self, page: TranscribedPage) -> None:
        """Move the third bar, if the page has its draft."""
        if page.error_category is None:
            confidence = "" if page.mean_confidence is None else f", confidence {page.mean_confidence:.2f}"
            note = f"{page.image.label}: {page.lines - page.failed_lines} read{confidence}"
            self._bars.update(self._transcribe, advance=1, note=note)
        else:
            self._bars.console.print(f"{page.image.label}: an attempt failed ({page.error_category.value})")

    def waiting(self, seconds: float) -> None:
        """Say that what is left is put off, or that somebody else, perhaps a dead process, holds it."""
        why = "due for a retry, or held by another worker (taken over if it stays silent)"
        self._bars.update(self._transcribe, note=f"waiting up to {seconds:.0f} s: {why}")
