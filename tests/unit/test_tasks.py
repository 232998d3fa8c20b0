"""What a worker process does with a stored scan, with engines that only pretend."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scribe_pipeline.engines import LineShape, LineText, segment, tasks, transcribe
from scribe_pipeline.engines.tasks import clean_text
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage import LocalBlobStore, new_object_key
from tests.houses import line_shape, png

SHAPES = (line_shape(20), line_shape(70), line_shape(120))
KEY = new_object_key("0" * 64, "png")


class FakeEngine:
    """A transcriber whose answer to each call is laid down; an exception is raised."""

    engine = "fake 1"

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)
        self.crops: list[np.ndarray] = []

    def transcribe(self, crop: np.ndarray) -> LineText:
        self.crops.append(crop)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return LineText(answer, 0.75)


@pytest.fixture
def store(tmp_path: Path) -> LocalBlobStore:
    """A store with one white scan."""
    blobs = LocalBlobStore(tmp_path / "blobs")
    blobs.write(KEY, png(), "test")
    return blobs


def read(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch, engine: FakeEngine, shapes: Any = SHAPES) -> list[Any]:
    monkeypatch.setattr(tasks, "transcriber", lambda provider, model: {("provider", "model"): engine}[provider, model])
    reading = transcribe(str(store.folder), KEY, "provider", "model", shapes)
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
        (ScribeError(Category.TIMEOUT, "slow"), Category.TIMEOUT),
        (ScribeError(Category.RATE_LIMITED, "busy"), Category.RATE_LIMITED),
        (ScribeError(Category.UPSTREAM, "down"), Category.UPSTREAM),
        (ScribeError(Category.UNCLASSIFIED, "odd"), Category.UNCLASSIFIED),
        (RuntimeError("secret"), Category.UNCLASSIFIED),
        (MemoryError(), Category.UNCLASSIFIED),
    ],
)
def test_one_lines_failure_is_that_lines_result(
    store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch, answer: str | Exception, result: Category
) -> None:
    """R89: a blank answer, a retryable and an unknown failure are counted for their line; the others are still read."""
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
