"""Pages as pixels: crops of lines, and the preview with the lines on it."""

import io

import numpy as np
import pytest
from PIL import Image

from scribe_pipeline.engines import LineShape, crop_line
from scribe_pipeline.engines.images import draw_lines
from tests.houses import line_shape


def coordinates() -> np.ndarray:
    """A page of 200 x 120 pixels whose red is x and whose green is y."""
    ys, xs = np.mgrid[:120, :200]
    return np.dstack([xs, ys, np.full_like(xs, 9)]).astype(np.uint8)


@pytest.mark.parametrize(
    ("polygon", "box"),
    [
        pytest.param(((10, 10), (90, 10), (90, 40), (10, 40)), (10, 10, 80, 30), id="upright"),
        pytest.param(((10, 30), (60, 10), (150, 25), (90, 60)), (10, 10, 140, 50), id="slanted"),
        pytest.param(((150, 100), (199, 100), (199, 119), (150, 119)), (150, 100, 49, 19), id="page corner"),
        pytest.param(((5, 50), (190, 50), (100, 50)), (5, 50, 185, 1), id="flat"),
        pytest.param(((199, 119), (199, 119), (199, 119)), (199, 119, 1, 1), id="last pixel"),
    ],
)
def test_a_crop_is_exactly_the_lines_box(polygon: tuple[tuple[int, int], ...], box: tuple[int, int, int, int]) -> None:
    """R159: never wider; inside the polygon it is the page, outside it is paper of one colour. The page is left as it was."""
    page, (x, y, width, height) = coordinates(), box
    crop = crop_line(page, LineShape((polygon[0], polygon[1]), polygon))
    assert crop.shape == (height, width, 3)
    kept = (crop == coordinates()[y : y + height, x : x + width]).all(axis=2)
    assert kept.mean() > 0.4
    assert len(np.unique(crop[~kept], axis=0)) == (0 if kept.all() else 1)
    np.testing.assert_array_equal(page, coordinates())


def test_what_lies_outside_the_polygon_is_paper() -> None:
    """R159: ink beside the line is painted over, ink on the line stays."""
    page = np.full((100, 100, 3), 240, np.uint8)
    page[:8], page[50:60, 20:40] = 0, 30
    crop = crop_line(page, LineShape(((0, 60), (99, 60)), ((0, 0), (99, 99), (0, 99))))
    assert crop[2, 60].tolist() == [240, 240, 240] and crop[55, 30].tolist() == [30, 30, 30]


@pytest.mark.parametrize("gap", [0, 20])
def test_neighbouring_columns_share_no_pixel_column(gap: int) -> None:
    """R160: two columns at one height give two crops, each with its own columns of the page."""
    crops = (crop_line(coordinates(), line_shape(40, *sides)) for sides in ((10, 100), (100 + gap, 190)))
    assert [set(crop[0, :, 0].tolist()) for crop in crops] == [set(range(10, 100)), set(range(100 + gap, 190))]


@pytest.mark.parametrize(("width", "expected"), [(2000, 640), (300, 300)])
def test_the_preview_is_a_small_jpeg_with_the_lines_on_it(width: int, expected: int) -> None:
    picture = Image.new("RGB", (width, width), "white")
    data = draw_lines(picture, (LineShape(((10, 100), (width - 10, 100)), ((10, 60), (width - 10, 60), (width - 10, 130))),))
    with Image.open(io.BytesIO(data)) as preview:
        assert (preview.format, preview.size) == ("JPEG", (expected, expected))
        row = np.asarray(preview)[round(100 * expected / width)].astype(int)
    assert (row[:, 0] - row[:, 1]).max() > 100, "no red baseline"
    assert len(data) < 50_000
