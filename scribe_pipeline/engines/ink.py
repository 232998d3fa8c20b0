"""How much of a line's outline is ink: outlines that reach far over it are drawn in."""

import cv2
import numpy as np
from numpy.typing import NDArray
from shapely import Polygon, box

from scribe_pipeline.engines.containers import LineShape
from scribe_pipeline.engines.images import Pixels

# An outline is drawn in if its ink takes less of its height; what is left around the ink, as a share of the ink's height.
_LOOSE, _MARGIN = 0.62, 0.06
# A row or column of pixels belongs to the text if it has this share of the ink of the fullest one; less is a speckle.
_SPECKLE = 0.04


def draw_in(line: LineShape, page: Pixels) -> LineShape:
    """Return the line with its outline drawn in to its ink, if the outline is far higher; (height, width, 3) is the page."""
    left, top, width, height = line.box
    grey = cv2.cvtColor(page[top : top + height, left : left + width], cv2.COLOR_RGB2GRAY)
    mask = np.zeros(grey.shape, np.uint8)
    cv2.fillPoly(mask, [np.array(line.polygon, np.int32) - [left, top]], 1)
    inside = grey[mask == 1]
    if not len(inside):
        return line
    level, _ = cv2.threshold(inside, 0, 255, cv2.THRESH_BINARY + cv2.THRESH_OTSU)
    ink = (grey <= level) & (mask == 1)
    (first_row, last_row), (first_column, last_column) = _extent(ink.sum(axis=1)), _extent(ink.sum(axis=0))
    ink_height = last_row - first_row + 1
    if ink_height >= _LOOSE * height:
        return line
    margin = _MARGIN * ink_height
    ink_box = box(first_column - margin, first_row - margin, last_column + margin, last_row + margin)
    part = Polygon([(x - left, y - top) for x, y in line.polygon]).buffer(0).intersection(ink_box)
    if not isinstance(part, Polygon) or part.is_empty:
        return line
    outline = tuple((left + round(x), top + round(y)) for x, y in part.exterior.coords[:-1])
    return LineShape(line.baseline, outline) if len(set(outline)) > 2 else line


def _extent(counts: NDArray[np.int64]) -> tuple[int, int]:
    """Return the first and the last place where there is more than a speckle."""
    places = np.flatnonzero(counts > _SPECKLE * counts.max(initial=0))
    return (int(places[0]), int(places[-1])) if len(places) else (0, len(counts) - 1)
