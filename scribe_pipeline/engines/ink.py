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
_LOOSE, _MARGIN = 1.52, 0.04
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

    A line without ascenders or descenders keeps the room that the page's lines usually need for theirs. Where most outlines are
    as high, that is how the page is drawn, and all stay.
    """
    inks = [_ink(line, page) for line in lines]
    seen = [(ink.above, ink.below) for ink in inks if ink is not None]
    if not seen:
        return list(lines)
    rooms = np.maximum([(0, 0) if ink is None else (ink.above, ink.below) for ink in inks], np.percentile(seen, _MOST, axis=0))
    loose = [line.box[3] > _LOOSE * room.sum() for line, room in zip(lines, rooms, strict=True)]
    if 2 * sum(loose) > len(lines):
        return list(lines)
    return [
        _drawn_in(line, ink, *room) if ink is not None and is_loose else line
        for line, ink, room, is_loose in zip(lines, inks, rooms, loose, strict=True)
    ]


def _drawn_in(line: LineShape, ink: _Ink, above: float, below: float) -> LineShape:
    """Return the line with its outline cut to its ink and the room over and under its baseline, if a whole outline is left."""
    margin, middle = _MARGIN * (above + below), _baseline_height(line)
    room = box(ink.left - margin, middle - above - margin, ink.right + margin, middle + below + margin)
    part = Polygon(line.polygon).buffer(0).intersection(room)
    if not isinstance(part, Polygon) or part.is_empty:
        return line
    outline = tuple((round(x), round(y)) for x, y in part.exterior.coords[:-1])
    return LineShape(line.baseline, outline) if len(set(outline)) > 2 else line


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
