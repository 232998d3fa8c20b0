"""Scans as pixels: what is taken and what is refused; pictures upright, on white, not clipped; crops of lines."""

import io
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scribe_pipeline.engines import ImageLimits, LineShape, crop_line, decode_upright, inspect_image
from scribe_pipeline.engines.images import draw_lines
from scribe_pipeline.errors import Category, ScribeError
from tests.houses import LIMITS, line_shape, png

BAD_IMAGES = Path(__file__).parents[2].parent / "shared" / "badimages"
# How an upright picture is stored for each EXIF orientation.
STORED = dict(
    enumerate(("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_90", "TRANSVERSE", "ROTATE_270"), 2)
)


def encode(picture: Image.Image, form: str, **options: Any) -> bytes:
    out = io.BytesIO()
    picture.save(out, form, **options)
    return out.getvalue()


def mark() -> Image.Image:
    """A picture that looks different in each of the eight orientations."""
    picture = Image.new("RGB", (64, 32), "white")
    picture.paste("black", (0, 0, 32, 16))
    return picture


def bomb() -> bytes:
    """A small PNG whose header promises 900 megapixels."""
    data = bytearray(png())
    struct.pack_into(">II", data, 16, 30_000, 30_000)
    struct.pack_into(">I", data, 29, zlib.crc32(data[12:29]))
    return bytes(data)


def wild_tiff() -> bytes:
    """A TIFF of one picture whose directory says that another one follows where there is none."""
    data = bytearray(encode(mark(), "TIFF"))
    (entries,) = struct.unpack_from("<H", data, 8)
    struct.pack_into("<I", data, 10 + 12 * entries, 255)
    return bytes(data)


NOISE = Image.effect_noise((64, 64), 90)
# Its directory stands at the end.
LZW = encode(NOISE, "TIFF", compression="tiff_lzw")
PAGES = encode(mark(), "TIFF", save_all=True, append_images=[mark()])
TAKEN = {
    "jpg": [encode(mark(), "JPEG", progressive=True), encode(mark(), "MPO", save_all=True, append_images=[mark()])],
    "png": [encode(mark(), "PNG"), encode(mark().convert("P"), "PNG")],
    "tiff": [encode(mark(), "TIFF"), encode(mark().convert("1"), "TIFF", compression="group4")],
}


@pytest.mark.parametrize("name", ["scan.png", "scan.jpg", "scan.tif", "scan"])
@pytest.mark.parametrize(("extension", "media_type"), [("jpg", "image/jpeg"), ("png", "image/png"), ("tiff", "image/tiff")])
def test_type_is_of_the_bytes_not_of_the_name(name: str, extension: str, media_type: str) -> None:
    """R87: and B20: a supported image under another extension is a page."""
    for data in TAKEN[extension]:
        facts = inspect_image(data, name, LIMITS)
        assert (facts.media_type, facts.extension, facts.width, facts.height) == (media_type, extension, 64, 32)


@pytest.mark.parametrize(
    ("name", "extension", "size"),
    [
        ("gen-jpeg-named.png", "jpg", (128, 128)),
        ("gen-tiff-named.jpg", "tiff", (500, 500)),
        ("gen-letter-exif6.jpg", "jpg", (390, 600)),
        ("gen-letter-alpha.png", "png", (390, 600)),
        pytest.param("g4_orientation_6.tif", "tiff", (590, 88)),
    ],
)
def test_odd_files_that_are_scans_are_taken(name: str, extension: str, size: tuple[int, int]) -> None:
    """R87: and B20, with the files of ../shared."""
    if not (BAD_IMAGES / name).exists():
        pytest.skip(f"no {name} in {BAD_IMAGES}")
    data = (BAD_IMAGES / name).read_bytes()
    facts = inspect_image(data, name, LIMITS)
    assert (facts.extension, facts.width, facts.height) == (extension, *size)
    assert decode_upright(data).size == size


@pytest.mark.parametrize(
    ("form", "orientation"), [(form, orientation) for form in ("JPEG", "PNG", "TIFF") for orientation in range(1, 9)]
)
def test_pictures_come_out_upright(form: str, orientation: int) -> None:
    """R87: width, height and pixels are those of the picture as it is meant to be seen."""
    exif = Image.Exif()
    exif[0x112] = orientation
    stored = mark().transpose(Image.Transpose[STORED[orientation]]) if orientation > 1 else mark()
    data = encode(stored, form, exif=exif)
    facts = inspect_image(data, "scan", LIMITS)
    seen = np.asarray(decode_upright(data)).astype(int)
    assert seen.shape == (32, 64, 3) and np.abs(seen - np.asarray(mark())).max() < 30
    assert (facts.width, facts.height) == (64, 32)


@pytest.mark.parametrize(("tag", "kind", "value"), [(0x100, 7, b"abcd"), (0x11A, 7, b"abcd"), (0x213, 2, b"ab\0\0")])
def test_a_damaged_exif_entry_harms_no_picture(tag: int, kind: int, value: bytes) -> None:
    """R87: what validation takes can be decoded afterwards."""
    entries = sorted([struct.pack(">HHIHH", 0x112, 3, 1, 6, 0), struct.pack(">HHI", tag, kind, len(value)) + value])
    data = encode(mark(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x02" + b"".join(entries) + bytes(4))
    facts = inspect_image(data, "scan.jpg", LIMITS)
    assert decode_upright(data).size == (facts.width, facts.height) == (32, 64)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize(
    ("data", "limits", "category"),
    [
        pytest.param(b"", LIMITS, Category.EMPTY, id="empty"),
        pytest.param(png(), replace(LIMITS, max_bytes=50), Category.TOO_LARGE, id="bytes"),
        pytest.param(png(), replace(LIMITS, max_side=399), Category.TOO_LARGE, id="side"),
        pytest.param(png(), replace(LIMITS, max_pixels=119_999), Category.TOO_LARGE, id="pixels"),
        pytest.param(bomb(), LIMITS, Category.TOO_LARGE, id="bomb, before it is decoded"),
        pytest.param(encode(mark(), "GIF"), LIMITS, Category.UNSUPPORTED_TYPE, id="gif"),
        pytest.param(encode(mark(), "WEBP"), LIMITS, Category.UNSUPPORTED_TYPE, id="webp"),
        pytest.param(b"Dear Sir,\n", LIMITS, Category.UNSUPPORTED_TYPE, id="text"),
        pytest.param(PAGES, LIMITS, Category.UNSUPPORTED_TYPE, id="several pages"),
        pytest.param(encode(NOISE, "JPEG")[:-600], LIMITS, Category.DAMAGED, id="cut jpeg"),
        pytest.param(encode(NOISE, "PNG")[:-600], LIMITS, Category.DAMAGED, id="cut png"),
        pytest.param(encode(NOISE, "TIFF")[:-600], LIMITS, Category.DAMAGED, id="cut tiff"),
        pytest.param(LZW[:-600], LIMITS, Category.DAMAGED, id="cut lzw tiff"),
        pytest.param(wild_tiff(), LIMITS, Category.DAMAGED, id="wild tiff"),
    ],
)
def test_what_is_no_page_is_refused_in_one_line(data: bytes, limits: ImageLimits, category: Category) -> None:
    """R87: a bad file is refused with its category, in one line that names it."""
    with pytest.raises(ScribeError) as refused:
        inspect_image(data, "folder/scan 1.png", limits)
    assert refused.value.category is category
    assert refused.value.message.startswith("folder/scan 1.png ") and "\n" not in refused.value.message


def test_what_just_keeps_the_limits_is_taken() -> None:
    """R87: B16's limits are inclusive."""
    assert inspect_image(png(), "scan", ImageLimits(len(png()), 400 * 300, 400)).width == 400


@pytest.mark.parametrize(("mode", "form"), [("RGBA", "PNG"), ("LA", "PNG"), ("PA", "TIFF")])
def test_transparent_parts_are_white(mode: str, form: str) -> None:
    picture = Image.new("RGBA", (3, 1))
    picture.putdata([(0, 0, 0, 0), (0, 0, 0, 128), (0, 0, 0, 255)])
    assert list(decode_upright(encode(picture.convert(mode), form)).getdata(0)) == [255, 127, 0]


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
@pytest.mark.parametrize("values", [[0, 256, 1024, 4095], [0, 300, 40_000, 65_535]], ids=["12 bit", "16 bit"])
def test_grey_of_more_than_eight_bits_is_not_clipped(values: list[int], form: str) -> None:
    data = encode(Image.fromarray(np.array([values], np.uint16)), form)
    assert list(decode_upright(data).getdata(0)) == [value * 255 // max(values) for value in values]


@pytest.mark.parametrize(("mode", "form"), [("P", "PNG"), ("P", "TIFF"), ("CMYK", "TIFF"), ("CMYK", "JPEG"), ("RGB", "JPEG")])
def test_colours_survive_palette_and_cmyk(mode: str, form: str) -> None:
    picture = decode_upright(encode(Image.new("RGB", (8, 8), (200, 30, 40)).convert(mode), form))
    assert picture.mode == "RGB" and np.abs(np.asarray(picture)[4, 4].astype(int) - (200, 30, 40)).max() < 30


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
