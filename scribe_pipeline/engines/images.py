"""Pages as pixels: cutting a line out, drawing the lines on a page."""

import io
import math

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from scribe_pipeline.engines.containers import LineShape

Pixels = NDArray[np.uint8]

_PAPER_PERCENTILE = 90
_PREVIEW_WIDTH = 640


def crop_line(page: Pixels, shape: LineShape) -> Pixels:
    """Cut the line's box out of a (height, width, 3) page and paint what lies outside its polygon in paper colour.

    The crop is exactly the box: never wider, never joined with a neighbour.
    """
    x, y, width, height = shape.box
    crop = page[y : y + height, x : x + width].copy()
    mask = Image.new("L", (crop.shape[1], crop.shape[0]))
    ImageDraw.Draw(mask).polygon([(px - x, py - y) for px, py in shape.polygon], fill=255)
    crop[np.asarray(mask) == 0] = np.percentile(crop, _PAPER_PERCENTILE, axis=(0, 1)).astype(np.uint8)
    return crop


def pad_flat(crop: Pixels, most: int) -> Pixels:
    """Return the (height, width, 3) crop with paper above and below it, so that it is at most so many times as wide as high."""
    height, width = crop.shape[:2]
    if width <= most * height:
        return crop
    canvas = np.full((math.ceil(width / most), width, 3), np.median(crop, axis=(0, 1)).astype(np.uint8), np.uint8)
    canvas[(len(canvas) - height) // 2 :][:height] = crop
    return canvas


def draw_lines(picture: Image.Image, lines: tuple[LineShape, ...]) -> bytes:
    """Return a small JPEG of the page with its baselines in red and its polygons in blue."""
    scale = min(1.0, _PREVIEW_WIDTH / picture.width)
    small = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))
    draw = ImageDraw.Draw(small)
    for line in lines:
        draw.polygon([(x * scale, y * scale) for x, y in line.polygon], outline=(70, 110, 220))
        draw.line([(x * scale, y * scale) for x, y in line.baseline], fill=(220, 40, 40), width=2)
    out = io.BytesIO()
    small.save(out, "JPEG", quality=70)
    return out.getvalue()
