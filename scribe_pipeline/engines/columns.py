"""A page's layout from where its lines stand: blocks, the order they are read in, and tiles that a segmentor can do justice to.

Geometry alone: no picture is looked at here and no model known. Rectangles are (left, top, right, bottom) in pixels.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Quads = NDArray[np.float64]
Rectangles = NDArray[np.float64]
Lines = tuple[int, ...]

# Two lines stand in one block if one is right below the other: by their widths, heights and the gap between them.
_SHARED_WIDTH, _MOST_GAP, _LIKE_HEIGHT = 0.5, 1.2, 0.5
# So many lines side by side with as many others are columns, not a letter's head or a table's row.
_COLUMN_LINES = 5
MOST_TILE_LINES = 50


def rectangles(quads: Quads) -> Rectangles:
    """Return a rectangle for each of (n, 4, 2) corners, as an (n, 4) array: as wide as the line, but only as high as its text.

    The rectangle around a long line that climbs a little would reach over its neighbours.
    """
    middle, height = quads[:, :, 1].mean(axis=1), np.linalg.norm(quads[:, 3] - quads[:, 0], axis=1)
    left, right = quads[:, :, 0].min(axis=1), quads[:, :, 0].max(axis=1)
    return np.stack([left, middle - height / 2, right, middle + height / 2], axis=1)


def around(lines: Rectangles) -> NDArray[np.float64]:
    """Return the rectangle around at least one other."""
    return np.concatenate([lines[:, :2].min(axis=0), lines[:, 2:].max(axis=0)])


def find_blocks(lines: Rectangles) -> list[Lines]:
    """Return the lines' indices block by block, blocks in reading order, lines from top to bottom.

    A line joins the one right below it, unless either has another neighbour there: a headline over two columns joins neither.
    """
    if not len(lines):
        return []
    below = _right_below(lines)
    single = below & (below.sum(axis=1, keepdims=True) == 1) & (below.sum(axis=0, keepdims=True) == 1)
    following = {int(upper): int(lower) for upper, lower in np.argwhere(single)}
    blocks = []
    for first in sorted(set(range(len(lines))) - set(following.values())):
        block = [first]
        while block[-1] in following:
            block.append(following[block[-1]])
        blocks.append(tuple(block))
    order = reading_order(np.array([around(lines[list(block)]) for block in blocks]))
    return [blocks[number] for number in order]


def _right_below(lines: Rectangles) -> NDArray[np.bool_]:
    """Return a matrix that is true where the column's line stands right below the row's, with nothing between."""
    left, top, right, bottom = lines.T
    height, width, middle = bottom - top, right - left, (top + bottom) / 2
    shared = np.minimum(right[:, None], right) - np.maximum(left[:, None], left)
    under = (middle > bottom[:, None] - height[:, None] / 4) & (middle[:, None] < top + height / 4)
    under &= shared > 0
    gap = np.where(under, middle - middle[:, None], np.inf)
    nearest = gap < gap.min(axis=1, keepdims=True, initial=np.inf) + height[:, None] / 2
    nearest &= gap < gap.min(axis=0, keepdims=True, initial=np.inf) + height / 2
    alike = np.minimum(height[:, None], height) >= _LIKE_HEIGHT * np.maximum(height[:, None], height)
    near = top - bottom[:, None] <= _MOST_GAP * np.minimum(height[:, None], height)
    wide = shared >= _SHARED_WIDTH * np.minimum(width[:, None], width)
    matrix: NDArray[np.bool_] = under & nearest & alike & near & wide
    return matrix


def reading_order(blocks: Rectangles) -> list[int]:
    """Return the blocks' indices in the order they are read in columns, left before right.

    The rules are those of T. M. Breuel, High Performance Document Layout Analysis (2003): of two blocks that share some width the
    upper comes first; of two that share none, the left, unless a block that reaches over both stands between them.
    """
    left, top, right, bottom = blocks.T
    middle = (top + bottom) / 2
    shares = np.minimum(right[:, None], right) - np.maximum(left[:, None], left) > _overlap_allowed(left, right)
    before = shares & (middle[:, None] < middle)
    beside = ~shares & ((left + right)[:, None] < left + right)
    lower, upper = np.minimum(middle[:, None], middle), np.maximum(middle[:, None], middle)
    for over in np.flatnonzero(shares.sum(axis=1) > 2):  # itself and two others
        reached = np.flatnonzero(shares[over])
        pairs = np.ix_(reached, reached)
        beside[pairs] &= ~((lower[pairs] < middle[over]) & (middle[over] < upper[pairs]))
    return _topological(before | beside, middle)


def _overlap_allowed(left: NDArray[np.float64], right: NDArray[np.float64]) -> NDArray[np.float64]:
    """A skewed column's rectangle reaches a little into the next."""
    width = right - left
    allowed: NDArray[np.float64] = 0.1 * np.minimum(width[:, None], width)
    return allowed


def _topological(before: NDArray[np.bool_], middle: NDArray[np.float64]) -> list[int]:
    """Sort so that nothing comes after what it is before; where that goes in a circle, the uppermost comes first."""
    order: list[int] = []
    left = np.ones(len(before), dtype=bool)
    np.fill_diagonal(before, False)
    waiting = before.sum(axis=0)
    while left.any():
        ready = np.flatnonzero(left & (waiting == 0))
        pick = int(ready[0]) if len(ready) else int(np.flatnonzero(left)[middle[left].argmin()])
        order.append(pick)
        left[pick] = False
        waiting = waiting - before[pick]
    return order


def has_columns(lines: Rectangles, blocks: Sequence[Lines]) -> bool:
    """Whether text runs side by side: two blocks of several lines that share height but no width."""
    tall = np.array([around(lines[list(block)]) for block in blocks if len(block) >= _COLUMN_LINES]).reshape(-1, 4)
    left, top, right, bottom = tall.T
    height = bottom - top
    apart = np.minimum(right[:, None], right) <= np.maximum(left[:, None], left)
    shared = np.minimum(bottom[:, None], bottom) - np.maximum(top[:, None], top)
    return bool((apart & (shared > np.minimum(height[:, None], height) / 2)).any())


def line_pitch(lines: Rectangles, blocks: Sequence[Lines]) -> float:
    """Return the usual distance from a line to the next in its block; without such a pair, the usual height; 0 without lines."""
    middle = (lines[:, 1] + lines[:, 3]) / 2
    steps = [middle[lower] - middle[upper] for block in blocks for upper, lower in pairwise(block)]
    if steps:
        return float(np.median(steps))
    return float(np.median(lines[:, 3] - lines[:, 1])) if len(lines) else 0.0


def make_tiles(lines: Rectangles, blocks: Sequence[Lines]) -> list[Lines]:
    """Return groups of at most `MOST_TILE_LINES` lines, in order: blocks that follow one another in a column go together.

    Blocks are not put together over what belongs to others.
    """
    tiles: list[Lines] = []
    for block in blocks:
        together = (*tiles[-1], *block) if tiles else block
        if tiles and len(together) <= MOST_TILE_LINES and _one_column(lines, tiles[-1], block):
            tiles[-1] = together
            continue
        parts = -(-len(block) // MOST_TILE_LINES)
        tiles += [tuple(int(line) for line in part) for part in np.array_split(block, parts)]
    return tiles


def _one_column(lines: Rectangles, tile: Lines, block: Lines) -> bool:
    """Whether the block goes on right below the tile, as wide as it, with nothing of others between."""
    upper, lower = around(lines[list(tile)]), around(lines[list(block)])
    shared = min(upper[2], lower[2]) - max(upper[0], lower[0])
    height = float(np.median(lines[[*tile, *block], 3] - lines[[*tile, *block], 1]))
    if shared < 0.8 * min(upper[2] - upper[0], lower[2] - lower[0]) or not -height < lower[1] - upper[3] < 3 * height:
        return False
    inside = inside_of(around(np.array([upper, lower])), lines)
    return int(inside.sum()) == int(inside[[*tile, *block]].sum())


def inside_of(area: NDArray[np.float64], lines: Rectangles) -> NDArray[np.bool_]:
    """Return which lines have their middle in the rectangle `area`."""
    x, y = (lines[:, 0] + lines[:, 2]) / 2, (lines[:, 1] + lines[:, 3]) / 2
    within: NDArray[np.bool_] = (area[0] <= x) & (x <= area[2]) & (area[1] <= y) & (y <= area[3])
    return within
