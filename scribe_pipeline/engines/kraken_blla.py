"""Lines by Kraken's BLLA, with the model inside its wheel or a registered one: a baseline and a boundary polygon for each."""

from collections.abc import Callable, Sequence
from importlib import metadata
from typing import Any, ClassVar

import numpy as np
from PIL import Image
from shapely import LineString, Polygon, box, make_valid

from scribe_pipeline.engines.containers import LineShape, Point
from scribe_pipeline.engines.kraken_files import load_kraken
from scribe_pipeline.engines.models import Model

Points = Sequence[Sequence[float]]

# How far a line's strip reaches over and under its baseline, as a share of the distance to the line above.
_STRIP_ABOVE, _STRIP_BELOW = 0.85, 0.32
# Width to height of what the model is given; it needs a gigabyte for each unit of it.
_MIN_ASPECT, _MAX_ASPECT = 0.1, 2.0
_MIN_STRIP_PITCH, _MAX_STRIP_PITCH = 15.0, 120.0


class KrakenBlla:
    """A segmentor; loading it takes seconds, so a process keeps one.

    Raises ScribeError (unavailable) for a registered model whose file is another one, or holds no segmentor.
    """

    wheel_models: ClassVar[tuple[str, ...]] = ()

    def __init__(self, model: Model | None = None) -> None:
        import torch
        from kraken.configs import SegmentationInferenceConfig
        from kraken.lib.vgsl import spred
        from kraken.tasks import SegmentationTaskModel

        torch.set_num_threads(1)
        self._config = SegmentationInferenceConfig(accelerator="cpu", text_direction="horizontal-lr")
        self._model = load_kraken(SegmentationTaskModel, model) if model else SegmentationTaskModel.load_model()
        # Weights hold subnormal numbers, which many processors multiply a hundred times slower; zero is as good.
        with torch.no_grad():
            for weights in (weights for net in self._model.seg_models for weights in net.parameters()):
                weights[weights.abs() < torch.finfo(weights.dtype).tiny] = 0
        version = metadata.version("kraken")
        self.engine = f"kraken {version}, {model.id} {model.sha256:.12}" if model else f"kraken-blla {version}"
        if not isinstance(spred.calculate_polygonal_environment, _NeverWithoutPolygon):
            # Kraken drops a line whose polygon it cannot compute, and has no setting for it.
            spred.calculate_polygonal_environment = _NeverWithoutPolygon(spred.calculate_polygonal_environment)

    def segment(self, picture: Image.Image, least_height: int = 0) -> tuple[LineShape, ...]:
        """Return the lines of an upright RGB page in reading order, clipped to the page.

        The model scales what it is given to a height of 1,800 pixels; `least_height` keeps it from enlarging a low picture.
        """
        found = self._model.predict(_within_aspect(picture, least_height), self._config)
        shapes = (clip_line(line.baseline, line.boundary, picture.width, picture.height) for line in found.lines)
        return tuple(shape for shape in shapes if shape is not None)


def _within_aspect(picture: Image.Image, least_height: int) -> Image.Image:
    """Return the picture with paper added on the right or below, so that it is neither too flat nor too narrow nor too low.

    The model scales each picture to one height: a very flat one would become millions of pixels wide.
    """
    width = max(picture.width, round(max(picture.height, least_height) * _MIN_ASPECT))
    height = max(picture.height, least_height, round(width / _MAX_ASPECT))
    if (width, height) == picture.size:
        return picture
    paper = tuple(int(level) for level in np.median(np.asarray(picture), axis=(0, 1)))
    padded = Image.new("RGB", (width, height), paper)
    padded.paste(picture)
    return padded


class _NeverWithoutPolygon:
    """Kraken's polygoniser, with a strip around the baseline where it finds no polygon."""

    def __init__(self, polygonise: Callable[..., list[Any]]) -> None:
        self._polygonise = polygonise

    def __call__(self, *, baselines: Sequence[Any], suppl_obj: Sequence[Any], im_feats: Any, **options: Any) -> list[Any]:
        polygons = self._polygonise(baselines=baselines, suppl_obj=suppl_obj, im_feats=im_feats, **options)
        return [
            strip_polygon(baseline, suppl_obj) if polygon is None or len(polygon) < 3 else polygon
            for baseline, polygon in zip(baselines, polygons, strict=True)
        ]


def strip_polygon(baseline: Points, others: Sequence[Points]) -> list[list[float]]:
    """Return a polygon that follows the baseline, as high as the distance to the nearest line above allows.

    Among `others` may be the outline of the region that the line lies in, which is no line above it.
    """
    line = np.asarray(baseline, dtype=float)
    x, y = line.mean(axis=0)
    above = []
    for other in (np.asarray(points, dtype=float) for points in others):
        (left, top), (right, bottom) = other.min(axis=0), other.max(axis=0)
        if left <= x <= right and bottom < y and top < y:
            above.append(y - other[:, 1].mean())
    pitch = max(_MIN_STRIP_PITCH, min([*above, _MAX_STRIP_PITCH]))
    upper = line - np.array([0, _STRIP_ABOVE * pitch])
    lower = line + np.array([0, _STRIP_BELOW * pitch])
    strip: list[list[float]] = np.maximum(np.vstack([upper, lower[::-1]]), 0).tolist()
    return strip


def clip_line(baseline: Points, boundary: Points, width: int, height: int) -> LineShape | None:
    """Return the line in whole pixels inside the page, or None for one that has no extent there."""
    page = box(0, 0, width, height)
    if len(baseline) < 2 or not LineString(baseline).intersects(page):
        return None
    line = _whole(baseline, width, height)
    polygon = make_valid(Polygon(boundary)).intersection(page)
    parts = [part for part in getattr(polygon, "geoms", [polygon]) if isinstance(part, Polygon) and not part.is_empty]
    corners: tuple[Point, ...] = ()
    if parts:
        corners = _whole(list(max(parts, key=lambda part: part.area).exterior.coords)[:-1], width, height)
    if len(set(corners)) < 3:
        corners = _whole(strip_polygon(baseline, ()), width, height)
    if len(set(line)) < 2 or len(set(corners)) < 3:
        return None
    return LineShape(line, corners)


def _whole(points: Points, width: int, height: int) -> tuple[Point, ...]:
    return tuple((min(max(round(x), 0), width - 1), min(max(round(y), 0), height - 1)) for x, y in points)
