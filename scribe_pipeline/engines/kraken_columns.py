"""Lines by Kraken's BLLA for pages with columns or more lines than its input can hold: it is shown one piece at a time.

Where text stands is found first (`text_detector`), then what belongs together (`columns`). A page that BLLA can do justice to as a
whole is given to it as a whole. What it does not find of the text that is there becomes a line all the same.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from scribe_pipeline.engines.columns import (
    Lines,
    Quads,
    Rectangles,
    around,
    find_blocks,
    has_columns,
    line_pitch,
    make_tiles,
    rectangles,
)
from scribe_pipeline.engines.containers import LineShape
from scribe_pipeline.engines.ink import draw_in
from scribe_pipeline.engines.kraken_blla import KrakenBlla, clip_line
from scribe_pipeline.engines.text_detector import DETECTOR_MODEL, TextDetector

_MODEL_HEIGHT = 1800
# Lines that one input can hold, how far apart (in the model's pixels) they are shown in a tile, and how far apart is too far for a
# picture that is enlarged.
_MOST_LINES, _PITCH, _MOST_PITCH = 64, 50, 120
# Fewer lines are taken as the detector found them.
_LEAST_TILE_LINES = 4
# Of its width, how much of a detected line another must cover to be it, and how little to be something else.
_SAME, _OTHER = 0.7, 0.3
# A detected outline is higher than its text by about this share of its height, at either edge.
_OUTLINE_MARGIN = 0.18
_UPRIGHT = 2.5
_SAMPLES = 50


class KrakenColumns:
    """A segmentor; loading it takes seconds, so a process keeps one."""

    wheel_models: ClassVar[tuple[str, ...]] = (DETECTOR_MODEL,)

    def __init__(self, detector: TextDetector | None = None, blla: KrakenBlla | None = None) -> None:
        self._detector = detector or TextDetector()
        self._blla = blla or KrakenBlla()
        self.engine = f"{self._blla.engine}, columns by {self._detector.version}"

    def segment(self, picture: Image.Image) -> tuple[LineShape, ...]:
        """Return the lines of an upright RGB page in reading order, clipped to the page."""
        return tuple(draw_in(self._lines(picture), np.asarray(picture)))

    def _lines(self, picture: Image.Image) -> Sequence[LineShape]:
        quads = self._detector.find(picture)
        quads = quads[~_upright(quads)]
        boxes = rectangles(quads)
        blocks = find_blocks(boxes)
        if len(boxes) <= _MOST_LINES and not has_columns(boxes, blocks):
            return self._whole(picture, quads, line_pitch(boxes, blocks))
        found: list[LineShape] = []
        for tile in make_tiles(boxes, blocks):
            lines = self._tile(picture, quads, boxes, tile) if len(tile) >= _LEAST_TILE_LINES else []
            found += _in_rows(_completed(lines, quads[list(tile)], picture))
        return found

    def _whole(self, picture: Image.Image, quads: Quads, pitch: float) -> list[LineShape]:
        """Return BLLA's lines of the page, and where it has nothing at all, those detected."""
        enlarged = picture.height < _MODEL_HEIGHT and pitch * _MODEL_HEIGHT / picture.height > _MOST_PITCH
        lines = list(self._blla.segment(picture, math.ceil(_MODEL_HEIGHT * pitch / _PITCH) if enlarged else 0))
        missed = quads[_covered(lines, quads).max(axis=0, initial=0) < _OTHER]
        for line in _drawn(missed, picture):
            lines.insert(_place(line, lines), line)
        return lines

    def _tile(self, picture: Image.Image, quads: Quads, boxes: Rectangles, tile: Lines) -> list[LineShape]:
        """Return BLLA's lines of a piece of the page, in the page's pixels."""
        own = np.isin(np.arange(len(boxes)), tile)
        area = around(boxes[own])
        margin = float(np.median(boxes[own, 3] - boxes[own, 1])) / 2
        left, top = (max(0, math.floor(edge - margin)) for edge in area[:2])
        right, bottom = (min(side, math.ceil(edge + margin)) for side, edge in zip(picture.size, area[2:], strict=True))
        piece = picture.crop((left, top, right, bottom))
        paper = tuple(int(level) for level in np.median(np.asarray(piece), axis=(0, 1)))
        draw = ImageDraw.Draw(piece)
        for quad in quads[~own]:
            draw.polygon([(x - left, y - top) for x, y in quad], fill=paper)
        pitch = (area[3] - area[1]) / len(tile)
        return [line.moved(left, top) for line in self._blla.segment(piece, math.ceil(_MODEL_HEIGHT * pitch / _PITCH))]


def _completed(lines: Sequence[LineShape], quads: Quads, picture: Image.Image) -> list[LineShape]:
    """Return the lines, and those detected that no single one of them covers, instead of their fragments."""
    covered = _covered(lines, quads)
    missed = covered.max(axis=0, initial=0) < _SAME
    lengths = np.array([line.box[2] for line in lines])
    widths = quads[:, :, 0].max(axis=1) - quads[:, :, 0].min(axis=1)
    fragments = (covered * widths)[:, missed].sum(axis=1) >= _SAME * lengths if len(lines) else []
    return [line for line, fragment in zip(lines, fragments, strict=True) if not fragment] + _drawn(quads[missed], picture)


def _covered(lines: Sequence[LineShape], quads: Quads) -> NDArray[np.float64]:
    """Return how much of the width of each quad (columns) the baseline of each line (rows) covers, from 0 to 1."""
    covered = np.zeros((len(lines), len(quads)))
    top_left, top_right, bottom_right, bottom_left = np.moveaxis(quads, 1, 0)
    widths = np.maximum(1, top_right[:, 0] - top_left[:, 0])
    for number, line in enumerate(lines):
        x, y = _samples(line)
        along = (x[:, None] - top_left[:, 0]) / widths
        upper = top_left[:, 1] + along * (top_right[:, 1] - top_left[:, 1])
        lower = bottom_left[:, 1] + along * (bottom_right[:, 1] - bottom_left[:, 1])
        height = lower - upper
        on = (along >= 0) & (along <= 1) & (y[:, None] > upper + 0.4 * height) & (y[:, None] < lower + 0.2 * height)
        covered[number] = on.mean(axis=0) * (x[-1] - x[0]) / widths
    return np.clip(covered, 0, 1)


def _samples(line: LineShape) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points of the line's baseline at even distances from its left to its right end."""
    points = np.array(sorted(line.baseline), dtype=float)
    x = np.linspace(points[0, 0], points[-1, 0], _SAMPLES)
    return x, np.interp(x, points[:, 0], points[:, 1])


def _upright(quads: Quads) -> NDArray[np.bool_]:
    """Return which outlines stand upright: they are of no horizontal text."""
    height = np.linalg.norm(quads[:, 3] - quads[:, 0], axis=1)
    upright: NDArray[np.bool_] = height > _UPRIGHT * np.linalg.norm(quads[:, 1] - quads[:, 0], axis=1)
    return upright


def _drawn(quads: Quads, picture: Image.Image) -> list[LineShape]:
    """Return detected outlines as lines."""
    lines = []
    for top_left, top_right, bottom_right, bottom_left in quads:
        baseline = [low + _OUTLINE_MARGIN * (high - low) for low, high in ((bottom_left, top_left), (bottom_right, top_right))]
        line = clip_line(baseline, [top_left, top_right, bottom_right, bottom_left], picture.width, picture.height)
        lines += [line] if line is not None else []
    return lines


def _in_rows(lines: Sequence[LineShape]) -> list[LineShape]:
    """Return the lines of a column from top to bottom; pieces that stand in one row from left to right."""
    middles = {line: _samples(line)[1].mean() for line in lines}
    height = np.median([line.box[3] for line in lines]) if lines else 0
    rows: list[list[LineShape]] = []
    for line in sorted(lines, key=middles.__getitem__):
        if rows and middles[line] - middles[rows[-1][0]] < height / 3:
            rows[-1].append(line)
        else:
            rows.append([line])
    return [line for row in rows for line in sorted(row, key=lambda line: line.box[0])]


def _place(line: LineShape, lines: Sequence[LineShape]) -> int:
    """Return before which of the lines another one comes: the first that stands below it."""
    left, top, width, height = line.box
    for number, other in enumerate(lines):
        if other.box[1] > top + height / 2 and other.box[0] < left + width and left < other.box[0] + other.box[2]:
            return number
    return len(lines)
