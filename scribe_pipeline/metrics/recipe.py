"""The evaluation of a recipe: a context's engines work on pages with ground truth, and each page is scored.

Nothing is stored: scans are read where they are, and no page, job or row comes of it.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

from scribe_pipeline.contexts import ContextSnapshot
from scribe_pipeline.engines import (
    EnginePool,
    ImageFacts,
    ImageLimits,
    LineText,
    ProcessExpired,
    Reading,
    Segmentation,
    Ticket,
    check_segmentor,
    check_transcriber,
    inspect_image,
    segment,
    transcribe,
)
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.metrics.evaluation import Line, PageScore, evaluate, pooled
from scribe_pipeline.metrics.groundtruth import GroundTruthLine, read_ground_truth


@dataclass(frozen=True)
class _Scan:
    """A scan, and the file with its ground truth if that has lines."""

    name: str
    path: Path
    truth: Path | None


@dataclass(frozen=True)
class FailedPage:
    """A page that could not be evaluated, and the sentence that says why and names it."""

    name: str
    message: str


@dataclass(frozen=True)
class EvaluatedPage:
    """A page as the recipe reads it. `found` is in reading order; a line that could not be read has no text.

    Without ground truth, `truth` is empty and `score` None. `seconds` are what finding and reading the lines took, without
    loading the engines.
    """

    name: str
    path: Path = field(repr=False)
    truth: tuple[GroundTruthLine, ...] = field(repr=False)
    found: tuple[Line, ...] = field(repr=False)
    failed_lines: int
    segmentor: str
    seconds: float
    score: PageScore | None


def evaluate_recipe(
    pool: EnginePool, recipe: ContextSnapshot, scans: Mapping[str, Path], limits: ImageLimits
) -> Iterator[EvaluatedPage | FailedPage]:
    """Look for the ground truth of scans, given by the names that reports call them; then evaluate and yield each as it is done.

    The ground truth of a scan is the ALTO or PAGE file beside it that is called like it, with the extension .xml. Pages
    whose ground truth cannot be read come first. Scans are opened in the pool alone: whatever is wrong with one costs one page.

    Raises ScribeError at once: unavailable or snapshot_invalid for an engine that is not there, failed_precondition if no page has
    ground truth. A caller that gives up half-way has to stop the pool.
    """
    check_segmentor(recipe.segmentation_model)
    check_transcriber(recipe.transcription_provider, recipe.transcription_model)
    pages: list[_Scan] = []
    failed: list[FailedPage] = []
    for name, path in scans.items():
        try:
            pages.append(_Scan(name, path, _truth_beside(path)))
        except ScribeError as error:
            failed.append(FailedPage(name, error.message))
    if not any(page.truth for page in pages):
        needed = "put ALTO or PAGE XML with lines beside each scan, called like it (page.jpg, page.xml)"
        problem = failed[0].message if failed else needed
        raise ScribeError(Category.FAILED_PRECONDITION, f"there is no ground truth to evaluate with: {problem}")
    return _work(pool, recipe, pages, failed, limits)


def _work(
    pool: EnginePool, recipe: ContextSnapshot, pages: Sequence[_Scan], failed: Sequence[FailedPage], limits: ImageLimits
) -> Iterator[EvaluatedPage | FailedPage]:
    """Keep the pool busy; what has ended is handed out while the next pages are worked on."""
    waiting = deque(pages)
    ended: list[EvaluatedPage | FailedPage] = [*failed]
    held: dict[Future[Any], tuple[Ticket, _Scan]] = {}
    while True:
        while waiting and pool.idle:
            page = waiting.popleft()
            ticket = pool.submit(read_scan, page.name, page.path, recipe, limits)
            held[ticket.future] = ticket, page
        yield from ended
        if not held:
            return
        ended = []
        for future in wait(held, return_when=FIRST_COMPLETED).done:
            ticket, page = held.pop(future)
            pool.release(ticket)
            ended.append(_evaluated(page, ticket))


def total_of(pages: Sequence[EvaluatedPage | FailedPage]) -> tuple[PageScore, float] | None:
    """The score of all pages with ground truth, pooled, and the mean of their seconds; None if there is none."""
    scored = [(page.score, page.seconds) for page in pages if isinstance(page, EvaluatedPage) and page.score is not None]
    if not scored:
        return None
    return pooled([score for score, _ in scored]), fmean(seconds for _, seconds in scored)


def read_scan(name: str, path: Path, recipe: ContextSnapshot, limits: ImageLimits) -> tuple[ImageFacts, Segmentation, Reading]:
    """Check a scan, find its lines and read them, as the main job does. Runs in a worker process.

    Raises ScribeError with a sentence that names the scan.
    """
    try:
        with path.open("rb") as file:
            facts = inspect_image(file.read(limits.max_bytes + 1), name, limits)
    except OSError as error:
        raise ScribeError(Category.UNREADABLE, f"{name} cannot be read: {error.strerror}") from None
    folder, file_name = str(path.parent), path.name
    try:
        segmentation = segment(folder, file_name, recipe.segmentation_model, False)
        if len(segmentation.lines) > recipe.segment_cap:
            counts = f"{len(segmentation.lines):,} lines, more than the {recipe.segment_cap:,} that the context allows"
            raise ScribeError(Category.TOO_MANY_SEGMENTS, f"it has {counts}")
        provider, model = recipe.transcription_provider, recipe.transcription_model
        reading = transcribe(folder, file_name, provider, model, recipe.reading_options, segmentation.lines)
    except ScribeError as error:
        raise ScribeError(error.category, f"{name}: {error.message}") from None
    return facts, segmentation, reading


def _truth_beside(path: Path) -> Path | None:
    xml = path.with_suffix(".xml")
    return xml if xml != path and xml.exists() and read_ground_truth(xml) else None


def _evaluated(page: _Scan, ticket: Ticket) -> EvaluatedPage | FailedPage:
    try:
        facts, segmentation, reading = ticket.result()
        truth = () if page.truth is None else read_ground_truth(page.truth, (facts.width, facts.height))
    except ScribeError as error:
        return FailedPage(page.name, error.message)
    except (ProcessExpired, CancelledError):
        return FailedPage(page.name, f"{page.name}: its worker process ended before the work was done")
    except Exception:
        # an engine may raise anything; for the page it is a failure, for the others none
        return FailedPage(page.name, f"{page.name}: the engine failed for a reason that is not known")
    texts = [line.value if isinstance(line, LineText) else "" for line in reading.lines]
    found = tuple(Line(shape.polygon, text) for shape, text in zip(segmentation.lines, texts, strict=True))
    return EvaluatedPage(
        name=page.name,
        path=page.path,
        truth=truth,
        found=found,
        failed_lines=sum(isinstance(line, Category) for line in reading.lines),
        segmentor=segmentation.engine,
        seconds=segmentation.seconds + reading.seconds,
        score=evaluate(found, truth) if truth else None,
    )
