"""How much of a line's outline is ink: outlines that reach far over it are drawn in."""

from collections.abc import Sequence
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray
from shapely import Polygon, box

from scribe_pipeline.engines.containers import LineShape
from scribe_pipeline.engines.images import Pixels

# An outline is drawn in if it is so many times as high as the room that its line needs; what is left around that, as its share.
_LOOSE, _MARGIN = 1.5, 0.04
# Of the page's lines, so many in a hundred need no more room than is usual.
_MOST = 75
# A row or column of pixels belongs to the text if it has this share of the ink of the fullest one; less is a speckle.
_SPECKLE = 0.04


@dataclass(frozen=True)
class _Ink:
    """Where a line's ink lies in the page; `above` and `below` are how far it reaches from the middle of the baseline."""

    left: float
    right: float
    above: float
    below: float


def draw_in(lines: Sequence[LineShape], page: Pixels) -> list[LineShape]:
    """Return the lines with outlines drawn in to their ink where they are far higher; (height, width, 3) is the page.

    A line without ascenders or descenders keeps the room that the page's lines usually need for theirs.
    """
    inks = [_ink(line, page) for line in lines]
    seen = [(ink.above, ink.below) for ink in inks if ink is not None]
    usual_above, usual_below = np.percentile(seen, _MOST, axis=0) if seen else (0.0, 0.0)
    drawn = []
    for line, ink in zip(lines, inks, strict=True):
        if ink is not None:
            above, below = max(ink.above, usual_above), max(ink.below, usual_below)
            if line.box[3] > _LOOSE * (above + below):
                margin = _MARGIN * (above + below)
                middle = _baseline_height(line)
                line = _within(line, (ink.left - margin, middle - above - margin, ink.right + margin, middle + below + margin))
        drawn.append(line)
    return drawn


def _ink(line: LineShape, page: Pixels) -> _Ink | None:
    """Return where the ink inside a line's outline lies, told from the paper by Otsu's threshold; None if there is no inside."""
    left, top, width, height = line.box
    grey = cv2.cvtColor(page[top : top + height, left : left + width], cv2.COLOR_RGB2GRAY)
    inside = np.zeros(grey.shape, np.uint8)
    cv2.fillPoly(inside, [np.array(line.polygon, np.int32) - [left, top]], 1)
    if not inside.any():
        return None
    level, _ = cv2.threshold(grey[inside == 1], 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    ink = (grey <= level) & (inside == 1)
    (first_row, last_row), (first_column, last_column) = _extent(ink.sum(axis=1)), _extent(ink.sum(axis=0))
    middle = _baseline_height(line) - top
    return _Ink(left + first_column, left + last_column, middle - first_row, last_row - middle)


def _extent(counts: NDArray[np.int64]) -> tuple[int, int]:
    """Return the first and the last place where there is more than a speckle."""
    places = np.flatnonzero(counts > _SPECKLE * counts.max(initial=0))
    return (int(places[0]), int(places[-1])) if len(places) else (0, len(counts) - 1)


def _baseline_height(line: LineShape) -> float:
    return float(np.mean([y for _, y in line.baseline]))


def _within(line: LineShape, edges: tuple[float, float, float, float]) -> LineShape:
    """Return the line with its outline cut to a rectangle, unless hardly any of it would be left."""
    part = Polygon(line.polygon).buffer(0).intersection(box(*edges))
    if not isinstance(part, Polygon) or part.is_empty:
        return line
    outline = tuple((round(x), round(y)) for x, y in part.exterior.coords[:-1])
    return LineShape(line.baseline, outline) if len(set(outline)) > 2 else line
