"""What an archivist would say of each file of ../shared/badimages: the sizes of its pages, or why it is none."""

import pytest

from scribe_pipeline.errors import Category
from tests.conftest import SHARED

FOLDER = SHARED / "badimages"

Pages = tuple[tuple[int, int], ...]

# Pages are upright, in pixels.
RIGHT: dict[str, Pages | Category] = {
    "12in16bit.tif": ((100, 100),),
    "16bit.cropped.tif": ((64, 64),),
    "broken_data_stream.png": Category.DAMAGED,
    "decompression_bomb.gif": Category.TOO_LARGE,
    # it moves: the first picture is the page
    "dispose_bgnd.gif": ((100, 100),),
    "exif_gps.jpg": ((8, 8),),
    "g4_orientation_6.tif": ((590, 88),),
    "gen-20000x8.png": ((20_000, 8),),
    "gen-bomb-30000x30000-1bit.png": Category.TOO_LARGE,
    "gen-jpeg-named.png": ((128, 128),),
    "gen-letter-alpha.png": ((390, 600),),
    "gen-letter-exif6.jpg": ((390, 600),),
    "gen-progressive.jpg": ((390, 600),),
    "gen-tiff-named.jpg": ((500, 500),),
    "hopper.Lab.tif": ((128, 128),),
    "hopper.heif": Category.UNSUPPORTED_TYPE,
    "hopper.webp": ((128, 128),),
    "hopper_g4_500.tif": ((500, 500),),
    "hopper_orientation_6.jpg": ((128, 128),),
    "invalid-exif.jpg": ((200, 200),),
    "iss634.webp": ((245, 245),),
    "libtiff_segfault.tif": Category.DAMAGED,
    "multipage.tiff": ((10, 10), (10, 10), (20, 20)),
    "negative_size.ppm": Category.UNSUPPORTED_TYPE,
    "old-style-jpeg-compression.tif": ((4160, 870),),
    "pil_sample_cmyk.jpg": ((100, 100),),
    "seek_too_large.tif": Category.DAMAGED,
    "test-ole-file.doc": Category.UNSUPPORTED_TYPE,
    "tiff_strip_cmyk_jpeg.tif": ((100, 100),),
    "total-pages-zero.tif": ((1728, 2156),) * 3,
    # every row is there, but the file announces more and ends: it was cut, and nobody can say what else is missing
    "truncated_end_chunk.png": Category.DAMAGED,
    "truncated_image.png": Category.DAMAGED,
    # only its colour profile is broken, and that is not used
    "unknown_compression_method.png": ((57, 57),),
    "zero_dpi.jp2": ((640, 480),),
    "zero_width.gif": Category.DAMAGED,
}
PAGES = {name: right for name, right in RIGHT.items() if not isinstance(right, Category)}


def needed() -> None:
    """Skip the test that runs where the files are not there."""
    if not FOLDER.is_dir():
        pytest.skip(f"the bad images are in {FOLDER}, which is not on this machine")
