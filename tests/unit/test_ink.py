"""Outlines that reach far over their ink are drawn in to it."""

import numpy as np
import pytest

from scribe_pipeline.engines import LineShape
from scribe_pipeline.engines.images import Pixels
from scribe_pipeline.engines.ink import draw_in


def page() -> Pixels:
    return np.full((400, 600, 3), 230, np.uint8)


def shape(left: int, top: int, right: int, bottom: int, baseline: int) -> LineShape:
    return LineShape(((left, baseline), (right, baseline)), ((left, top), (right, top), (right, bottom), (left, bottom)))


def test_a_loose_outline_is_drawn_in_and_a_good_one_is_left() -> None:
    pixels = page()
    for top in (40, 100, 160, 300):
        pixels[top : top + 40, 100:300] = 20
    good = [shape(90, top - 5, 310, top + 45, top + 30) for top in (40, 100, 160)]
    loose = shape(60, 260, 400, 380, 330)
    *kept, drawn = draw_in([*good, loose], pixels)
    assert kept == good
    assert drawn.baseline == loose.baseline
    left, top, width, height = drawn.box
    assert (left, top, left + width, top + height) == pytest.approx((100, 300, 300, 340), abs=3)


def test_a_line_without_ascenders_keeps_room_for_them() -> None:
    """What the page's lines need over their baselines is left to the one that needs less."""
    pixels = page()
    for top in (40, 100, 160):
        pixels[top : top + 40, 100:300] = 20
    pixels[315:330, 100:300] = 20
    lines = [*(shape(90, top - 5, 310, top + 45, top + 30) for top in (40, 100, 160)), shape(90, 260, 310, 380, 330)]
    _, top, _, height = draw_in(lines, pixels)[-1].box
    assert (top, top + height) == pytest.approx((300, 340), abs=3)


def test_where_most_outlines_are_loose_all_stay() -> None:
    pixels = page()
    for top in (40, 160, 300):
        pixels[top : top + 40, 100:300] = 20
    lines = [shape(90, max(0, top - 40), 310, top + 80, top + 30) for top in (40, 160, 300)]
    assert draw_in(lines, pixels) == lines


def test_a_speckle_is_no_ink() -> None:
    pixels = page()
    for top in (40, 180):
        pixels[top : top + 40, 100:300] = 20
    pixels[112:114, 150:152] = 20
    _, top, _, height = draw_in([shape(90, 35, 310, 85, 70), shape(90, 100, 310, 300, 210)], pixels)[1].box
    assert (top, top + height) == pytest.approx((180, 220), abs=3)


def test_lines_without_ink_or_inside_stay_as_they_are() -> None:
    lines = [shape(10, 10, 500, 200, 150), LineShape(((0, 0), (1, 0)), ((0, 0), (1, 0), (1, 1)))]
    assert draw_in(lines, page()) == lines
    assert draw_in([], page()) == []
