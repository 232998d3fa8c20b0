"""What is made of Kraken's findings, without Kraken: lines in whole pixels inside the page, and none lost for want of a polygon."""

import random
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scribe_pipeline.engines import crop_line
from scribe_pipeline.engines.kraken_blla import _NeverWithoutPolygon, _within_aspect, clip_line, strip_polygon

WIDTH, HEIGHT = 400, 300
BASELINE = [(20.4, 100.6), (200.0, 101.0), (380.0, 99.5)]


@pytest.mark.parametrize(
    "boundary",
    [
        pytest.param([(20, 80), (380, 80), (380, 110), (20, 110)], id="inside"),
        pytest.param([(20.3, 80.7), (380.2, 79.9), (379.6, 110.5)], id="fractions"),
        pytest.param([(-50, 80), (450, 80), (450, 110), (-50, 110)], id="over both sides"),
        pytest.param([(20, -80), (380, -80), (380, 500), (20, 500)], id="over top and bottom"),
        pytest.param([(20, 80), (380, 110), (380, 80), (20, 110)], id="self-crossing"),
        pytest.param([(20, 80), (200, 80), (200, 110), (380, 110), (200, 110), (20, 110)], id="with a spike"),
        pytest.param([(20, 80), (380, 80), (20, 80)], id="without area"),
        pytest.param([(500, 80), (600, 80), (600, 110)], id="beside the page"),
        pytest.param([], id="none at all"),
    ],
)
def test_a_line_lies_in_whole_pixels_inside_the_page(boundary: list[tuple[float, float]]) -> None:
    """R88: each line has a pixel rectangle inside the image, around its baseline's height."""
    line = clip_line(BASELINE, boundary, WIDTH, HEIGHT)
    assert line is not None
    assert line.baseline == ((20, 101), (200, 101), (380, 100))
    assert len(set(line.polygon)) >= 3
    assert all(type(value) is int for point in line.polygon for value in point)
    assert all(0 <= x < WIDTH and 0 <= y < HEIGHT for x, y in line.polygon)
    x, y, width, height = line.box
    assert x + width < WIDTH and y + height < HEIGHT and y <= 101 <= y + height + 1
    assert width > 170


def test_a_polygon_inside_the_page_keeps_its_corners() -> None:
    """R88: clipping changes nothing that needs no clipping."""
    corners = ((20, 80), (380, 85), (380, 110), (20, 112))
    line = clip_line(BASELINE, corners, WIDTH, HEIGHT)
    assert line is not None and set(line.polygon) == set(corners) and len(line.polygon) == 4


def test_of_a_polygon_cut_in_two_the_larger_part_is_taken() -> None:
    """R88: a line that leaves the page and comes back has one polygon."""
    boundary = [(20, -10), (60, 40), (100, -10), (380, -10), (380, 60), (110, 60), (105, -5), (20, -5)]
    line = clip_line([(20, 30), (380, 30)], boundary, WIDTH, HEIGHT)
    assert line is not None and line.box[0] > 90 and line.box[2] > 250


@pytest.mark.parametrize(
    "baseline",
    [
        [(500, 10), (600, 10)],
        [(-90, 10), (-10, 10)],
        [(20, 50)],
        pytest.param([(20, 400), (380, 400)]),
        pytest.param([(500, 10), (600, 200)]),
        pytest.param([(-90, 10), (-10, 40)]),
    ],
)
def test_a_line_without_extent_on_the_page_is_none(baseline: list[tuple[float, float]]) -> None:
    """R88: what lies beside the page is no line."""
    around = [(x, y - 20) for x, y in baseline] + [(x, y + 5) for x, y in reversed(baseline)]
    assert clip_line(baseline, around if len(baseline) > 1 else [], WIDTH, HEIGHT) is None


@pytest.mark.parametrize(
    ("others", "top", "bottom"),
    [
        pytest.param([], 500 - 0.85 * 120, 500 + 0.32 * 120, id="alone"),
        pytest.param([[(100, 460), (300, 460)]], 500 - 0.85 * 40, 500 + 0.32 * 40, id="a line above"),
        pytest.param([[(100, 100), (300, 100)], [(100, 450), (300, 450)]], 500 - 0.85 * 50, 500 + 0.32 * 50, id="the nearest"),
        pytest.param([[(100, 540), (300, 540)]], 500 - 0.85 * 120, 500 + 0.32 * 120, id="one below"),
        pytest.param([[(700, 460), (900, 460)]], 500 - 0.85 * 120, 500 + 0.32 * 120, id="one in the next column"),
    ],
)
def test_a_strip_is_as_high_as_the_line_above_allows(others: list[Any], top: float, bottom: float) -> None:
    strip = strip_polygon([(100, 500), (300, 500)], others)
    assert [x for x, _ in strip] == [100, 300, 300, 100]
    assert [y for _, y in strip] == pytest.approx([top, top, bottom, bottom])


def test_a_strip_does_not_reach_over_the_top() -> None:
    assert min(y for _, y in strip_polygon([(0, 5), (90, 5)], [])) == 0


GOOD = [[0, 0], [9, 0], [9, 9]]


@pytest.mark.parametrize("bad", [None, [], [[1, 1]], [[1, 1], [2, 2]]], ids=["none", "empty", "a point", "two points"])
def test_a_line_without_a_polygon_gets_a_strip(bad: list[Any] | None) -> None:
    """R88: Kraken drops a line whose polygon it cannot compute; here none is lost, and good polygons are left alone."""
    baselines = [[(10, 50), (90, 50)], [(10, 80), (90, 80)]]
    asked: dict[str, Any] = {}

    def polygonise(**options: Any) -> list[Any]:
        asked.update(options)
        return [bad, GOOD]

    options = {"baselines": baselines, "suppl_obj": [[(10, 20), (90, 20)]], "im_feats": "features"}
    polygons = _NeverWithoutPolygon(polygonise)(**options, topline=False, raise_on_error=False)
    assert polygons[1] is GOOD
    assert polygons[0] == strip_polygon(baselines[0], options["suppl_obj"])
    assert asked == options | {"topline": False, "raise_on_error": False}


@pytest.mark.parametrize(
    ("size", "least_height", "given"),
    [
        ((20000, 8), 0, (20000, 10000)),
        ((8, 20000), 0, (2000, 20000)),
        ((400, 300), 0, (400, 300)),
        ((400, 300), 900, (400, 900)),
        ((40, 300), 900, (90, 900)),
    ],
)
def test_a_flat_picture_is_padded_with_paper(size: tuple[int, int], least_height: int, given: tuple[int, int]) -> None:
    """R87: no scan within the limits makes the model's input, which has one height, grow without end."""
    padded = _within_aspect(Image.new("RGB", size, (200, 190, 180)), least_height)
    assert padded.size == given
    assert padded.getpixel((given[0] - 1, given[1] - 1)) == (200, 190, 180)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (2, 1), (1, 30_000), (400, 8), (20_000, 8), (8, 8)])
def test_a_line_of_the_smallest_pages_lies_inside_them(width: int, height: int) -> None:
    """R88: wherever a model sees a line, its rectangle has pixels of the page and no others, or it is no line."""
    dice = random.Random(width + height)
    for _ in range(200):
        xs = sorted(dice.uniform(-5, width + 5) for _ in range(3))
        baseline = [(x, dice.uniform(-3, height + 3)) for x in xs]
        boundary = [(x, y - dice.uniform(0, 9)) for x, y in baseline] + [(x, y + dice.uniform(0, 4)) for x, y in baseline[::-1]]
        line = clip_line(baseline, boundary, width, height)
        if line is not None:
            left, top, wide, high = line.box
            assert 0 <= left < left + wide <= width and 0 <= top < top + high <= height
            crop = crop_line(np.zeros((height, width, 3), np.uint8), line)
            assert crop.shape == (high, wide, 3)
