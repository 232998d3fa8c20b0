"""Where print or writing stands on a page, line by line: PP-OCRv6's detector from RapidOCR's wheel.

It finds quadrilaterals, no baselines, in seconds whatever the page; what is made of them belongs to `columns`.
"""

import math
from importlib import metadata

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from scribe_pipeline.engines.columns import Quads, rectangles
from scribe_pipeline.engines.rapidocr_local import load_rapidocr

# Long sides, in pixels, at which a page is looked at until its text is large enough to be told apart, and what large enough is.
_LONG_SIDES = (1200, 2800, 5600)
_LEAST_TEXT_HEIGHT = 18
_MOST_ENLARGED = 1.5
# The network needs memory by the pixel: a page goes through it in strips, which overlap by more than four lines of text.
_STRIP_PIXELS, _STRIP_OVERLAP, _LEAST_STRIP = 4_000_000, 160, 480
DETECTOR_MODEL = "PP-OCRv6_det_small"


class TextDetector:
    """Loading it takes a second, so a process keeps one."""

    version = property(lambda self: f"{DETECTOR_MODEL} of rapidocr {metadata.version('rapidocr')}")

    def __init__(self) -> None:
        self._rapidocr = load_rapidocr("Det", DETECTOR_MODEL, limit_side_len=1, max_candidates=5000)
        # it would make large pages smaller by itself
        self._rapidocr.max_side_len, self._rapidocr.min_side_len = 10**6, 1

    def find(self, picture: Image.Image) -> Quads:
        """Return the lines of an upright RGB page as an (n, 4, 2) array of corners in pixels, clockwise from the top left."""
        quads: Quads = np.zeros((0, 4, 2))
        for long_side in _LONG_SIDES:
            scale = min(long_side / max(picture.size), _MOST_ENLARGED)
            quads = self._at_scale(picture, scale)
            heights = np.linalg.norm(quads[:, 3] - quads[:, 0], axis=1) * scale
            if scale == _MOST_ENLARGED or not len(quads) or np.median(heights) >= _LEAST_TEXT_HEIGHT:
                break
        return quads

    def _at_scale(self, picture: Image.Image, scale: float) -> Quads:
        width, height = (max(1, round(side * scale)) for side in picture.size)
        small = np.asarray(picture.resize((width, height), Image.Resampling.BOX if scale < 1 else Image.Resampling.BICUBIC))
        step = max(_LEAST_STRIP, _STRIP_PIXELS // width) - _STRIP_OVERLAP
        strips = max(1, math.ceil((height - _STRIP_OVERLAP) / step))
        found = [self._in_strip(small, number * step, step, number == 0, number == strips - 1) for number in range(strips)]
        return _without_doubles(np.concatenate(found)) / scale

    def _in_strip(self, page: NDArray[np.uint8], top: int, step: int, first: bool, last: bool) -> Quads:
        """Return the lines that lie well inside this strip; those half-way to the next one are in both."""
        strip = page[top : top + step + _STRIP_OVERLAP]
        boxes = self._rapidocr(np.ascontiguousarray(strip[:, :, ::-1]), use_det=True, use_cls=False, use_rec=False).boxes
        if boxes is None or not len(boxes):
            return np.zeros((0, 4, 2))
        quads = np.asarray(boxes, dtype=np.float64) + np.array([0, top])
        middles = quads[:, :, 1].mean(axis=1)
        inside = np.ones(len(quads), dtype=bool)
        if not first:
            inside &= middles >= top + _STRIP_OVERLAP / 4
        if not last:
            inside &= middles < top + step + _STRIP_OVERLAP * 3 / 4
        kept: Quads = quads[inside]
        return kept


def _without_doubles(quads: Quads) -> Quads:
    """Return each line once: of two that share half of the area that they cover together, the first."""
    left, top, right, bottom = rectangles(quads).T
    width = np.minimum(right[:, None], right) - np.maximum(left[:, None], left)
    height = np.minimum(bottom[:, None], bottom) - np.maximum(top[:, None], top)
    shared = width.clip(0) * height.clip(0)
    area = (right - left) * (bottom - top)
    double = np.triu(shared > (area[:, None] + area - shared) / 2, 1).any(axis=0)
    once: Quads = quads[~double]
    return once
