"""A page's layout from where its lines stand: blocks, reading order, tiles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribe_pipeline.engines.columns import (
    MOST_TILE_LINES,
    Rectangles,
    around,
    find_blocks,
    has_columns,
    inside_of,
    line_pitch,
    make_tiles,
    reading_order,
    rectangles,
)


def column(left: int, top: int, lines: int, width: int = 200, pitch: int = 30) -> list[tuple[int, int, int, int]]:
    """Lines of 25 pixels, right below one another."""
    return [(left, top + number * pitch, left + width, top + number * pitch + 25) for number in range(lines)]


def page(*parts: list[tuple[int, int, int, int]]) -> Rectangles:
    return np.array([line for part in parts for line in part], dtype=float)


HEADLINE = [(0, 0, 640, 60)]
# The second column stands first, so that no order comes from the order given.
TWO = page(column(220, 100, 8), column(0, 100, 8), HEADLINE)
LEFT, RIGHT, TOP = tuple(range(8, 16)), tuple(range(8)), (16,)


def test_columns_are_read_one_after_the_other() -> None:
    """R158: lines are ordered by block and within it from top to bottom, two lines at the same height never as one."""
    assert find_blocks(TWO) == [TOP, LEFT, RIGHT]


def test_a_headline_over_both_columns_parts_what_is_above_from_what_is_below() -> None:
    lines = page(column(0, 0, 4), column(220, 0, 4), [(0, 200, 420, 240)], column(0, 300, 4), column(220, 300, 4))
    order = [line for block in find_blocks(lines) for line in block]
    assert order == list(range(len(lines)))


def test_a_headline_over_one_column_stays_with_it() -> None:
    lines = page(column(0, 0, 6), column(220, 0, 3), [(220, 110, 420, 150)], column(220, 170, 3))
    assert [line for block in find_blocks(lines) for line in block] == list(range(len(lines)))


def test_a_climbing_line_is_only_as_high_as_its_text() -> None:
    """A line of 1,000 pixels that climbs by 60 would, in its bounding box, reach over its neighbours."""
    quads = np.array([[(0, 60 + y), (1000, y), (1000, 30 + y), (0, 90 + y)] for y in (0, 40, 80)], dtype=float)
    lines = rectangles(quads)
    assert lines[0].tolist() == [0, 30, 1000, 60]
    assert find_blocks(lines) == [(0, 1, 2)]


def test_columns_are_told_from_a_heading_beside_a_date() -> None:
    assert has_columns(TWO, find_blocks(TWO))
    letter = page(column(0, 0, 2), column(300, 0, 2), column(0, 100, 20, width=500))
    assert not has_columns(letter, find_blocks(letter))


def test_pitch_is_the_distance_within_blocks() -> None:
    assert line_pitch(TWO, find_blocks(TWO)) == 30
    assert line_pitch(page(HEADLINE), [(0,)]) == 60
    assert line_pitch(np.zeros((0, 4)), []) == 0


def test_tiles_hold_a_column_up_to_what_a_segmentor_can_take() -> None:
    lines = page(column(0, 0, 120), column(220, 0, 30), column(220, 950, 10))
    tiles = make_tiles(lines, find_blocks(lines))
    assert [len(tile) for tile in tiles] == [40, 40, 40, 40]
    assert tiles[3] == tuple(range(120, 160))


def test_a_tile_does_not_reach_over_another_blocks_lines() -> None:
    """Two blocks with a third between them, which is narrower and belongs to neither, are no tile together."""
    lines = page(column(0, 0, 5), [(150, 180, 420, 205)], column(0, 230, 5))
    for tile in make_tiles(lines, find_blocks(lines)):
        within = inside_of(around(lines[list(tile)]), lines)
        assert set(np.flatnonzero(within)) == set(tile)


def test_what_goes_in_a_circle_is_read_from_the_top() -> None:
    """Four blocks like the sails of a mill, each before the next."""
    sails = page([(0, 0, 200, 50)], [(190, 40, 300, 300)], [(100, 260, 210, 400)], [(0, 45, 110, 350)])
    assert sorted(reading_order(sails)) == [0, 1, 2, 3]
    assert reading_order(sails)[0] == 0


@pytest.mark.parametrize("lines", [np.zeros((0, 4)), page(HEADLINE), np.array([[5.0, 5.0, 5.0, 5.0]] * 3)])
def test_little_or_nothing(lines: Rectangles) -> None:
    blocks = find_blocks(lines)
    assert sorted(line for tile in make_tiles(lines, blocks) for line in tile) == list(range(len(lines)))
    assert not has_columns(lines, blocks)


@given(
    st.lists(st.tuples(st.integers(0, 900), st.integers(0, 900), st.integers(1, 400), st.integers(1, 60)), min_size=1, max_size=120)
)
def test_no_line_is_lost_or_doubled(boxes: list[tuple[int, int, int, int]]) -> None:
    """However lines lie, each is in one block and one tile, and no tile holds more than it can."""
    lines = np.array([(x, y, x + width, y + height) for x, y, width, height in boxes], dtype=float)
    blocks = find_blocks(lines)
    tiles = make_tiles(lines, blocks)
    for parts in (blocks, tiles):
        assert sorted(line for part in parts for line in part) == list(range(len(lines)))
    assert max(map(len, tiles)) <= MOST_TILE_LINES
