"""What a worker process does with a stored scan, with engines that only pretend."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scribe_pipeline.engines import LineShape, LineText, ReadingOptions, segment, tasks, transcribe
from scribe_pipeline.engines.tasks import clean_text, read_all
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage import LocalBlobStore, new_object_key
from tests.houses import line_shape, png
from tests.providers import Rounds

SHAPES = (line_shape(20), line_shape(70), line_shape(120))
KEY = new_object_key("0" * 64, "png")
LINES = 30


class FakeEngine:
    """A transcriber whose answer to each call is laid down; a category is the line's failure, an exception is raised."""

    engine = "fake 1"
    concurrent = False
    proven: ReadingOptions | None = None

    def __init__(self, *answers: str | Category | Exception) -> None:
        self.answers = list(answers)
        self.crops: list[np.ndarray] = []

    def transcribe(self, crop: np.ndarray, options: ReadingOptions) -> LineText | Category:
        self.crops.append(crop)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, Category) else LineText(answer, 0.75)


@pytest.fixture
def store(tmp_path: Path) -> LocalBlobStore:
    """A store with one white scan."""
    blobs = LocalBlobStore(tmp_path / "blobs")
    blobs.write(KEY, png(), "test")
    return blobs


def read(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch, engine: FakeEngine, shapes: Any = SHAPES) -> list[Any]:
    monkeypatch.setattr(tasks, "transcriber", lambda *asked: {("provider", "model", 6): engine}[asked])
    reading = transcribe(str(store.folder), KEY, "provider", "model", ReadingOptions(), shapes)
    assert reading.seconds >= 0
    return list(reading.lines)


def test_a_lines_text_is_the_providers_answer_cleaned(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """R89: the text of each line is what the provider answered for it, after cleaning."""
    lines = read(store, monkeypatch, FakeEngine("first", "  the \n second\x00 ", "ثالث"))
    assert lines == [LineText("first", 0.75), LineText("the second", 0.75), LineText("ثالث", 0.75)]


@pytest.mark.parametrize(
    ("answer", "result"),
    [
        ("", Category.NO_TEXT),
        (" \n\t\x00", Category.NO_TEXT),
        (Category.RESPONSE_TOO_LARGE, Category.RESPONSE_TOO_LARGE),
        (Category.INVALID_REQUEST, Category.INVALID_REQUEST),
        (ScribeError(Category.TIMEOUT, "slow"), Category.TIMEOUT),
        (ScribeError(Category.RATE_LIMITED, "busy"), Category.RATE_LIMITED),
        (ScribeError(Category.UPSTREAM, "down"), Category.UPSTREAM),
        (ScribeError(Category.UNCLASSIFIED, "odd"), Category.UNCLASSIFIED),
        (RuntimeError("secret"), Category.UNCLASSIFIED),
        (MemoryError(), Category.UNCLASSIFIED),
    ],
)
def test_one_lines_failure_is_that_lines_result(
    store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch, answer: str | Category | Exception, result: Category
) -> None:
    """R89: a blank answer, the line's own, a retryable and an unknown failure are counted for their line; the others are read."""
    progress: list[tuple[int, int]] = []
    monkeypatch.setattr(tasks, "report_progress", lambda *counts: progress.append(counts))
    assert read(store, monkeypatch, FakeEngine("one", answer, "three")) == [LineText("one", 0.75), result, LineText("three", 0.75)]
    assert progress == [(1, 0), (1, 1), (2, 1)]


@pytest.mark.parametrize("category", [category for category in Category if not category.retryable])
def test_a_permanent_failure_stops_at_once(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch, category: Category) -> None:
    """R89: what would fail for every line is not asked again."""
    engine = FakeEngine("one", ScribeError(category, "no"), "three")
    with pytest.raises(ScribeError) as stopped:
        read(store, monkeypatch, engine)
    assert stopped.value.category is category
    assert len(engine.crops) == 2


def test_each_line_is_one_call_with_its_own_crop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R160: two columns at one height and a line below them are three calls; R159: each with the pixels of its own box."""
    page = Image.effect_noise((400, 300), 90).convert("RGB")
    store = LocalBlobStore(tmp_path / "blobs")
    page.save(tmp_path / "page.png")
    store.write(KEY, (tmp_path / "page.png").read_bytes(), "test")
    shapes = (line_shape(20, 10, 190), line_shape(20, 210, 390), line_shape(70, 30, 300))
    engine = FakeEngine("left", "right", "below")
    assert [line.value for line in read(store, monkeypatch, engine, shapes)] == ["left", "right", "below"]
    assert len(engine.crops) == 3
    for shape, crop in zip(shapes, engine.crops, strict=True):
        x, y, width, height = shape.box
        np.testing.assert_array_equal(crop, np.asarray(page)[y : y + height, x : x + width])


class Readers:
    """Reads lines of a page of 30 as one of many: what each gives is laid down, and who is there together is counted."""

    def __init__(self, at_once: int, *, alone: bool = True, **results: Category | ScribeError) -> None:
        self.shapes = [line_shape(40 * row) for row in range(LINES)]
        self.rounds = Rounds(LINES, at_once, alone=alone)
        self.results = {self.shapes[int(name.removeprefix("line")) - 1]: result for name, result in results.items()}
        # those that are still being read when it is over
        self.held: list[LineShape] = []
        self.over = threading.Event()
        self.left_alone: list[bool] = []
        self.begun: list[LineShape] = []
        self.there = self.most = 0
        self.lock = threading.Lock()

    def __call__(self, shape: LineShape) -> LineText | Category:
        with self.lock:
            self.begun.append(shape)
            number = len(self.begun)
            self.there += 1
            self.most = max(self.most, self.there)
        self.rounds(number)
        with self.lock:
            self.there -= 1
        result = self.results.get(shape, LineText(str(self.shapes.index(shape)), None))
        if isinstance(result, ScribeError):
            raise result
        if shape in self.held:
            self.left_alone.append(self.over.wait(30))
        return result


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """However slow the machine is, the first line is read alone if it comes to an end."""
    monkeypatch.setattr(tasks, "ALONE_SECONDS", 60)


@pytest.mark.parametrize("at_once", [1, 6, 40])
def test_lines_are_read_so_many_at_once(at_once: int) -> None:
    """R18, R111, R112: each line once and in its place, the first alone, then as many at once as are wanted and never more."""
    readers = Readers(at_once, line1=Category.UPSTREAM, line9=Category.UNCLASSIFIED, line30=Category.NO_TEXT)
    results = read_all(readers, readers.shapes, at_once)
    expected: list[LineText | Category] = [LineText(str(number), None) for number in range(LINES)]
    expected[0], expected[8], expected[29] = Category.UPSTREAM, Category.UNCLASSIFIED, Category.NO_TEXT
    assert results == expected
    assert readers.begun[0] == readers.shapes[0] and len(readers.begun) == len(set(readers.begun)) == LINES
    assert readers.most == min(at_once, LINES - 1)


@pytest.mark.parametrize("at_once", [1, 6, 40])
def test_a_proven_reading_begins_with_all(at_once: int) -> None:
    """R18, R111: where such a reading has been answered before, the first line waits for no word of its own."""
    # with the first line alone, its round would never be complete
    readers = Readers(at_once, alone=False, line1=Category.UPSTREAM)
    results = read_all(readers, readers.shapes, at_once, proven=True)
    assert results == [Category.UPSTREAM, *(LineText(str(number), None) for number in range(1, LINES))]
    assert len(readers.begun) == len(set(readers.begun)) == LINES
    assert readers.most == min(at_once, LINES)


def test_a_first_line_that_takes_long_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """R18, R110: it would have been refused by then; five more are begun beside it, and never more than six are under way."""
    monkeypatch.setattr(tasks, "ALONE_SECONDS", 0.01)
    readers = Readers(6, alone=False)
    results = read_all(readers, readers.shapes, 6)
    assert results == [LineText(str(number), None) for number in range(LINES)]
    assert readers.most == 6 and len(readers.begun) == LINES


@pytest.mark.parametrize(("at_once", "begun"), [(1, 1), (6, 6)])
def test_a_proven_reading_that_fails_begins_no_line_more(at_once: int, begun: int) -> None:
    """R118: one at once, a permanent failure of the first line is the only call all the same."""
    refusal = ScribeError(Category.AUTHENTICATION, "no")
    readers = Readers(at_once, alone=False, line1=refusal)
    readers.held = readers.shapes[1:begun]
    with pytest.raises(ScribeError) as stopped:
        read_all(readers, readers.shapes, at_once, proven=True)
    readers.over.set()
    assert stopped.value is refusal
    assert len(readers.begun) == begun


def test_results_come_in_the_order_of_the_lines() -> None:
    """R111: whichever is read first."""
    shapes = [line_shape(40 * row) for row in range(7)]
    read = [threading.Event() for _ in shapes]
    read[0].set()

    def last_first(shape: LineShape) -> LineText:
        number = shapes.index(shape)
        if 0 < number < 6:
            assert read[number + 1].wait(30)
        read[number].set()
        return LineText(str(number), None)

    assert [line.value for line in read_all(last_first, shapes, 6) if isinstance(line, LineText)] == list("0123456")


@pytest.mark.parametrize(("at_once", "fails", "begun"), [(1, 1, 1), (6, 1, 1), (1, 2, 2), (6, 2, 7), (6, 7, 7), (6, 10, 13)])
def test_after_a_permanent_failure_no_line_is_begun(at_once: int, fails: int, begun: int) -> None:
    """R118: those under way are the last; a failure of the first line is the only call."""
    refusal = ScribeError(Category.AUTHENTICATION, "no")
    readers = Readers(at_once, **{f"line{fails}": refusal})
    readers.held = readers.shapes[max(0, begun - at_once) : begun]
    with pytest.raises(ScribeError) as stopped:
        read_all(readers, readers.shapes, at_once)
    assert readers.left_alone == [], "nobody waits for what is under way"
    readers.over.set()
    assert stopped.value is refusal
    assert len(readers.begun) == begun


@pytest.mark.parametrize(("at_once", "begun"), [(1, 2), (6, 7)])
def test_after_a_cancel_no_line_is_begun(monkeypatch: pytest.MonkeyPatch, at_once: int, begun: int) -> None:
    """R117: with line two the work is not wanted any more, and none is begun but those under way."""
    wanted = iter([True])

    def progress(succeeded: int, failed: int) -> None:
        if not next(wanted, False):
            raise ScribeError(Category.CANCELED, "enough")

    monkeypatch.setattr(tasks, "report_progress", progress)
    readers = Readers(at_once)
    with pytest.raises(ScribeError) as stopped:
        read_all(readers, readers.shapes, at_once)
    assert stopped.value.category is Category.CANCELED
    assert len(readers.begun) == begun


@pytest.mark.parametrize(("concurrent", "at_once"), [(False, 1), (True, 6)])
def test_an_engine_of_this_process_reads_one_line_at_a_time(
    store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch, concurrent: bool, at_once: int
) -> None:
    """R111: several at once only where somebody else works meanwhile, whatever the context says."""
    wanted: list[int] = []

    def read_none(read: Any, shapes: Any, at_once: int, **_: bool) -> list[Any]:
        wanted.append(at_once)
        return []

    engine = FakeEngine()
    monkeypatch.setattr(engine, "concurrent", concurrent, raising=False)
    monkeypatch.setattr(tasks, "transcriber", lambda *_: engine)
    monkeypatch.setattr(tasks, "read_all", read_none)
    transcribe(str(store.folder), KEY, "provider", "model", ReadingOptions(concurrency=6), SHAPES)
    assert wanted == [at_once]


@pytest.mark.parametrize(
    ("answered", "proven"),
    [(None, False), (ReadingOptions(concurrency=6), True), (ReadingOptions(concurrency=6, temperature=2), False)],
)
def test_a_reading_is_proven_by_an_answer_to_one_like_it(
    store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch, answered: ReadingOptions | None, proven: bool
) -> None:
    """R118: a provider that has answered may yet refuse what another context asks."""
    said: list[bool] = []

    def read_none(read: Any, shapes: Any, at_once: int, *, proven: bool) -> list[Any]:
        said.append(proven)
        return []

    engine = FakeEngine()
    engine.proven = answered
    monkeypatch.setattr(tasks, "transcriber", lambda *_: engine)
    monkeypatch.setattr(tasks, "read_all", read_none)
    transcribe(str(store.folder), KEY, "provider", "model", ReadingOptions(concurrency=6), SHAPES)
    assert said == [proven]


def test_a_scan_that_is_gone_is_unreadable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = FakeEngine("never")
    (tmp_path / "another.png").write_bytes(b"scan")
    with pytest.raises(ScribeError) as refused:
        read(LocalBlobStore(tmp_path), monkeypatch, engine)
    assert refused.value.category is Category.UNREADABLE and engine.crops == []


@pytest.mark.parametrize("with_preview", [False, True])
def test_segmentation_gives_the_engines_lines_in_its_order(
    store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch, with_preview: bool
) -> None:
    """R88: the lines are those that the engine found on the whole page."""

    class FakeSegmentor:
        engine = "lines 1"

        def segment(self, picture: Image.Image) -> tuple[LineShape, ...]:
            assert picture.size == (400, 300)
            return SHAPES[::-1]

    monkeypatch.setattr(tasks, "segmentor", {"model": FakeSegmentor()}.__getitem__)
    found = segment(str(store.folder), KEY, "model", with_preview)
    assert (found.lines, found.engine) == (SHAPES[::-1], "lines 1")
    assert (found.preview is not None) is with_preview


def test_a_large_page_is_segmented_in_a_part_of_its_size(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """R88: its lines lie on the whole page all the same."""
    small = LineShape(((0, 50), (132, 50)), ((0, 20), (133, 20), (133, 99), (0, 99)))

    class FakeSegmentor:
        engine = "lines 1"

        def segment(self, picture: Image.Image) -> tuple[LineShape, ...]:
            assert picture.size == (134, 100)
            return (small,)

    monkeypatch.setattr(tasks, "segmentor", {"model": FakeSegmentor()}.__getitem__)
    monkeypatch.setattr(tasks, "_MOST_SEGMENTED_PIXELS", 400 * 300 / 8)
    (line,) = segment(str(store.folder), KEY, "model", with_preview=True).lines
    assert line == LineShape(((0, 150), (396, 150)), ((0, 60), (399, 60), (399, 297), (0, 297)))


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (" two\r\n lines\t", "two lines"),
        ("a\u2028b\x85c\u00a0d", "a b c d"),
        ("nul\x00 bell\x07 escape\x1b[0m", "nul bell escape[0m"),
        ("half \ud800pair", "half pair"),
        ("بِسْمِ \u200fكتب", "بِسْمِ \u200fكتب"),
        ("e\u0301 ꝑ 𐌰𐌱", "e\u0301 ꝑ 𐌰𐌱"),
        ("नमस्\u200dते", "नमस्\u200dते"),
    ],
)
def test_cleaning_keeps_every_script_on_one_line(text: str, cleaned: str) -> None:
    """R89: cleaning takes away what is no text; R165: and nothing of any script."""
    assert clean_text(text) == cleaned
