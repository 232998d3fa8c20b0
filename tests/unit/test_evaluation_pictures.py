"""Pictures: each kind of line has its colour, a page of any size makes a bounded picture, and bars are as long as their numbers."""

import io

import numpy as np
import pytest
from PIL import Image

from scribe_pipeline.metrics import Line, draw_evaluation, draw_measures, draw_shares

GREEN, VERMILION, BLUE = (0, 158, 115), (213, 94, 0), (0, 114, 178)


def box(x: float, y: float) -> Line:
    return Line(((x, y), (x + 300, y), (x + 300, y + 40), (x, y + 40)), "")


def has(picture: np.ndarray, colour: tuple[int, int, int]) -> bool:
    """Whether several pixels are of this colour, or what JPEG makes of it."""
    return int((np.abs(picture.astype(int) - colour).max(axis=-1) < 40).sum()) > 20


def drawn(found: list[Line], truth: list[Line], width: int = 800, height: int = 600) -> np.ndarray:
    page = Image.new("RGB", (width, height), "white")
    with Image.open(io.BytesIO(draw_evaluation(page, found, truth))) as picture:
        return np.asarray(picture)


def test_each_kind_of_line_has_its_colour_where_it_lies() -> None:
    """R167: matched, missed and extra lines are told apart on the page."""
    matched, missed, extra = box(50, 50), box(450, 50), box(50, 400)
    picture = drawn([matched, extra], [matched, missed])
    legend = picture.shape[0] - 600
    page = picture[legend:]
    corners = {"matched": page[30:110, 30:380], "missed": page[30:110, 430:780], "extra": page[380:460, 30:380]}
    for kind, colour in (("matched", GREEN), ("missed", VERMILION), ("extra", BLUE)):
        assert {name for name, part in corners.items() if has(part, colour)} == {kind}
        assert has(picture[:legend], colour), f"the legend has no {kind}"


def test_a_page_without_ground_truth_has_one_kind_of_line() -> None:
    picture = drawn([box(50, 50)], [])
    assert has(picture, BLUE) and not has(picture, GREEN) and not has(picture, VERMILION)


@pytest.mark.parametrize(
    "lines",
    [[], [Line((), "")], [Line(((1, 1), (2, 2)), "")], [Line(((5, 5),) * 3, "")], [box(-50, -50), box(5000, 10)]],
)
def test_lines_without_area_or_beyond_the_page_are_no_error(lines: list[Line]) -> None:
    assert drawn(lines, lines).shape[1] == 800


@pytest.mark.parametrize(("width", "expected"), [(4000, 1600), (900, 900)])
def test_a_large_page_is_scaled_down_with_its_lines(width: int, expected: int) -> None:
    picture = drawn([box(width - 400, 100)], [], width, 1000)
    assert picture.shape[1] == expected
    assert has(picture[:, expected * (width - 420) // width :], BLUE)


def test_bars_are_as_long_as_the_measures() -> None:
    pages = {"a": {"recall": 1.0, "cer": 0.0}, "b" * 60: {"recall": 0.5, "cer": None}}
    with Image.open(io.BytesIO(draw_measures(pages, {"recall": "found", "cer": "wrong"}))) as picture:
        green = np.abs(np.asarray(picture.convert("RGB")).astype(int) - GREEN).max(axis=-1) < 40
    lengths = [int(row.sum()) for row in green if row.sum() > 150]
    assert min(lengths) == pytest.approx(200, abs=8) and max(lengths) == pytest.approx(400, abs=8)


def test_what_is_not_measured_does_not_look_like_zero() -> None:
    """R167: a page of which no line was matched has no error rate, rather than the best one."""
    zero, unmeasured = (draw_measures({"a": {"cer": value}}, {"cer": "wrong"}) for value in (0.0, None))
    with Image.open(io.BytesIO(zero)) as without, Image.open(io.BytesIO(unmeasured)) as with_dash:
        right_of_axis = np.s_[-15:, 284:600]
        assert np.asarray(without.convert("RGB"))[right_of_axis].min() > 200
        assert np.asarray(with_dash.convert("RGB"))[right_of_axis].min() < 150


@pytest.mark.parametrize(
    ("whole", "amounts", "lengths"),
    [
        (1000, (250, 500, 100), (100, 200, 40)),
        (7 * 2**40, (2**40, 0, 2**41), (57, 0, 114)),
        (1000, (0, 0, 0), (0, 0, 0)),
        (1000, (900, 300, 0), (360, 52, 0)),
        (0, (5, 0, 0), (412, 0, 0)),
        (0, (0, 0, 0), (0, 0, 0)),
    ],
)
def test_parts_are_as_long_as_their_shares(whole: int, amounts: tuple[int, ...], lengths: tuple[int, ...]) -> None:
    """R62: parts of a bar stand for amounts of a whole; what is beyond it, or part of nothing, sticks out a little."""
    with Image.open(io.BytesIO(draw_shares([("a" * 50, whole, amounts)], ["one", "two", "three"]))) as picture:
        row = np.asarray(picture.convert("RGB")).astype(int)[-15, 284:]
    drawn = [int((np.abs(row - colour).max(axis=-1) < 40).sum()) for colour in (GREEN, VERMILION, BLUE)]
    assert drawn == pytest.approx([max(0, length - 4 * (place == 0)) for place, length in enumerate(lengths)], abs=5)


def test_six_parts_are_told_apart() -> None:
    """As many parts as there are outcome classes have a colour each, thin ones too, and the legend shows them in their order."""
    rows = [(f"day {number}", 100, (50, 30, 10, 6, 3, 1)) for number in range(30)]
    chart = draw_shares(rows, [f"part {number}" for number in range(6)])
    with Image.open(io.BytesIO(chart)) as picture:
        pixels = np.asarray(picture.convert("RGB")).astype(int)
    colours = (GREEN, VERMILION, BLUE, (204, 121, 167), (240, 228, 66), (86, 180, 233))
    bar, legend = pixels[-15, 284:680], pixels[20]
    drawn = [int((np.abs(bar - colour).max(axis=-1) < 12).sum()) for colour in colours]
    assert drawn == pytest.approx([196, 120, 40, 24, 12, 4], abs=2)
    begins = [int(np.argmax(np.abs(legend - colour).max(axis=-1) < 12)) for colour in colours]
    assert begins == sorted(set(begins)) and begins[0] > 0
