"""What is taken and what is refused; pictures upright, on white, not clipped, whatever format and samples they come in."""

import io
import random
import struct
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image, ImageCms, PngImagePlugin

from scribe_pipeline.engines import ImageLimits, Tiff, decode_upright, image_extension, inspect_image
from scribe_pipeline.errors import Category, ScribeError
from tests.bad_images import FOLDER, PAGES, needed
from tests.houses import LIMITS, png

# How an upright picture is stored for each EXIF orientation.
STORED = dict(
    enumerate(("FLIP_LEFT_RIGHT", "ROTATE_180", "FLIP_TOP_BOTTOM", "TRANSPOSE", "ROTATE_90", "TRANSVERSE", "ROTATE_270"), 2)
)
MEDIA_TYPES = {
    "gif": "image/gif", "jp2": "image/jp2", "jpg": "image/jpeg", "png": "image/png", "tiff": "image/tiff", "webp": "image/webp",
}  # fmt: skip


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


def moving() -> dict[str, Any]:
    """Options that put a second picture behind the first."""
    return {"save_all": True, "append_images": [Image.new("RGB", (64, 32), "red")]}


NOISE = Image.effect_noise((64, 64), 90)
# Its directory stands at the end.
LZW = encode(NOISE, "TIFF", compression="tiff_lzw")
TAKEN = {
    "gif": [encode(mark(), "GIF"), encode(mark(), "GIF", **moving())],
    "jp2": [encode(mark(), "JPEG2000"), encode(mark(), "JPEG2000", no_jp2=True), encode(mark(), "JPEG2000", tile_size=(16, 16))],
    "jpg": [encode(mark(), "JPEG", progressive=True), encode(mark(), "MPO", **moving())],
    "png": [encode(mark(), "PNG"), encode(mark().convert("P"), "PNG"), encode(mark(), "PNG", **moving())],
    "tiff": [
        encode(mark(), "TIFF"),
        encode(mark().convert("1"), "TIFF", compression="group4"),
        encode(mark(), "TIFF", big_tiff=True),
        encode(mark(), "TIFF", **moving()),
    ],
    "webp": [encode(mark(), "WEBP"), encode(mark(), "WEBP", lossless=True), encode(mark(), "WEBP", **moving())],
}
EACH_TAKEN = [(extension, number) for extension, files in TAKEN.items() for number in range(len(files))]


@pytest.mark.parametrize(("extension", "number"), EACH_TAKEN)
def test_type_is_of_the_bytes_not_of_the_name(extension: str, number: int) -> None:
    """R87, B20: a supported image under another extension is a page; of a moving picture, the first is."""
    data = TAKEN[extension][number]
    assert image_extension(data[:16]) == extension
    for name in ("scan.png", "scan.tif", "scan"):
        facts = inspect_image(data, name, LIMITS)
        assert (facts.media_type, facts.extension, facts.width, facts.height) == (MEDIA_TYPES[extension], extension, 64, 32)
    seen = np.asarray(decode_upright(data)).astype(int)
    assert np.abs(seen - np.asarray(mark())).max() < 60


@pytest.mark.parametrize("name", PAGES)
def test_odd_files_that_are_scans_can_be_decoded(name: str) -> None:
    """R87, B20: what validation says of a page's size is what engines get to see."""
    needed()
    data = (FOLDER / name).read_bytes()
    pages = [data]
    if image_extension(data[:16]) == "tiff":
        pages += [Tiff(data).page(number) for number in range(2, Tiff(data).count + 1)]
    for page, size in zip(pages, PAGES[name], strict=True):
        facts = inspect_image(page, name, ImageLimits(10**8, 10**8, 30_000, 20))
        assert (facts.width, facts.height) == decode_upright(page).size == size


def by_exif(orientation: int, form: str) -> dict[str, Any]:
    exif = Image.Exif()
    exif[0x112] = orientation
    return {"tiffinfo": {0x112: orientation}} if form == "TIFF" else {"exif": exif}


def by_xmp(orientation: int, form: str) -> dict[str, Any]:
    xmp = f'<x:xmpmeta><rdf:Description tiff:Orientation="{orientation}"/></x:xmpmeta>'
    if form == "PNG":
        info = PngImagePlugin.PngInfo()
        info.add_itxt("XML:com.adobe.xmp", xmp)
        return {"pnginfo": info}
    return {"tiffinfo": {700: xmp.encode()}} if form == "TIFF" else {"xmp": xmp.encode()}


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("said", [by_exif, by_xmp])
@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_pictures_come_out_upright(form: str, said: Callable[[int, str], dict[str, Any]], orientation: int) -> None:
    """R87: width, height and pixels are those of the picture as it is meant to be seen."""
    stored = mark().transpose(Image.Transpose[STORED[orientation]]) if orientation > 1 else mark()
    data = encode(stored, form, **said(orientation, form))
    facts = inspect_image(data, "scan", LIMITS)
    seen = np.asarray(decode_upright(data)).astype(int)
    assert seen.shape == (32, 64, 3) and np.abs(seen - np.asarray(mark())).max() < 60
    assert (facts.width, facts.height) == (64, 32)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "TIFF", "WEBP"])
def test_exif_counts_before_xmp(form: str) -> None:
    """R87: where both say how a scan stands, it is turned once, as EXIF says."""
    stored = mark().transpose(Image.Transpose.ROTATE_90)
    options = by_exif(6, form), by_xmp(8, form)
    merged = {"tiffinfo": options[0]["tiffinfo"] | options[1]["tiffinfo"]} if form == "TIFF" else options[0] | options[1]
    data = encode(stored, form, **merged)
    assert inspect_image(data, "scan", LIMITS).width == 64
    assert np.abs(np.asarray(decode_upright(data)).astype(int) - np.asarray(mark())).max() < 60


@pytest.mark.parametrize(("tag", "kind", "value"), [(0x100, 7, b"abcd"), (0x11A, 7, b"abcd"), (0x213, 2, b"ab\0\0")])
def test_a_damaged_exif_entry_harms_no_picture(tag: int, kind: int, value: bytes) -> None:
    """R87: what validation takes can be decoded afterwards."""
    entries = sorted([struct.pack(">HHIHH", 0x112, 3, 1, 6, 0), struct.pack(">HHI", tag, kind, len(value)) + value])
    data = encode(mark(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x02" + b"".join(entries) + bytes(4))
    facts = inspect_image(data, "scan.jpg", LIMITS)
    assert decode_upright(data).size == (facts.width, facts.height) == (32, 64)


@pytest.mark.parametrize("kind", [b"iCCP", b"zTXt", b"pHYs"])
def test_a_damaged_remark_harms_no_png(kind: bytes) -> None:
    """R87: a profile or a text that is broken is not needed to see the picture."""
    data = png()
    broken = struct.pack(">I", 4) + kind + b"a\0\7\7" + bytes(4)
    assert inspect_image(data[:33] + broken + data[33:], "scan.png", LIMITS).width == 400


@pytest.mark.filterwarnings("ignore:Corrupt EXIF", "ignore:Truncated File")
@pytest.mark.parametrize(
    ("data", "limits", "category"),
    [
        pytest.param(b"", LIMITS, Category.EMPTY, id="empty"),
        pytest.param(png(), replace(LIMITS, max_bytes=50), Category.TOO_LARGE, id="bytes"),
        pytest.param(png(), replace(LIMITS, max_side=399), Category.TOO_LARGE, id="side"),
        pytest.param(png(), replace(LIMITS, max_pixels=119_999), Category.TOO_LARGE, id="pixels"),
        pytest.param(TAKEN["webp"][2], replace(LIMITS, max_pixels=4095), Category.TOO_LARGE, id="pixels that move"),
        pytest.param(bomb(), LIMITS, Category.TOO_LARGE, id="bomb, before it is decoded"),
        pytest.param(encode(mark(), "BMP"), LIMITS, Category.UNSUPPORTED_TYPE, id="bmp"),
        pytest.param(encode(mark(), "AVIF"), LIMITS, Category.UNSUPPORTED_TYPE, id="avif"),
        pytest.param(encode(mark(), "PPM"), LIMITS, Category.UNSUPPORTED_TYPE, id="ppm"),
        pytest.param(encode(mark(), "ICO"), LIMITS, Category.UNSUPPORTED_TYPE, id="ico"),
        pytest.param(encode(mark(), "PDF"), LIMITS, Category.UNSUPPORTED_TYPE, id="pdf"),
        pytest.param(b"Dear Sir,\n", LIMITS, Category.UNSUPPORTED_TYPE, id="text"),
        pytest.param(encode(NOISE, "JPEG")[:-600], LIMITS, Category.DAMAGED, id="cut jpeg"),
        pytest.param(encode(NOISE, "PNG")[:-600], LIMITS, Category.DAMAGED, id="cut png"),
        pytest.param(encode(NOISE, "PNG")[:-12], LIMITS, Category.DAMAGED, id="png without end"),
        pytest.param(encode(NOISE, "TIFF")[:-600], LIMITS, Category.DAMAGED, id="cut tiff"),
        pytest.param(LZW[:-600], LIMITS, Category.DAMAGED, id="cut lzw tiff"),
        pytest.param(encode(NOISE, "GIF")[:-600], LIMITS, Category.DAMAGED, id="cut gif"),
        pytest.param(encode(NOISE, "WEBP")[:-600], LIMITS, Category.DAMAGED, id="cut webp"),
        pytest.param(encode(NOISE, "JPEG2000")[:-600], LIMITS, Category.DAMAGED, id="cut jp2"),
        pytest.param(b"\xff\xd8\xff\xe0", LIMITS, Category.DAMAGED, id="first bytes only"),
        pytest.param(b"II*\0\xff\0\0\0", LIMITS, Category.DAMAGED, id="no directory"),
    ],
)
def test_what_is_no_page_is_refused_in_one_line(data: bytes, limits: ImageLimits, category: Category) -> None:
    """R87: a bad file is refused with its category, in one line that names it."""
    with pytest.raises(ScribeError) as refused:
        inspect_image(data, "folder/scan 1.png", limits)
    assert refused.value.category is category
    assert refused.value.message.startswith("folder/scan 1.png ") and "\n" not in refused.value.message


def test_a_webp_that_opencv_stumbles_over_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    """R87: what OpenCV raises is neither an OSError nor any other that decoders raise."""

    def stumble(*_: object) -> None:
        raise cv2.error("assertion failed")

    monkeypatch.setattr(cv2, "imdecode", stumble)
    for look in (lambda data: inspect_image(data, "scan.webp", LIMITS), decode_upright):
        with pytest.raises(ScribeError) as refused:
            look(TAKEN["webp"][0])
        assert refused.value.category is Category.DAMAGED


def test_a_refused_format_learns_which_are_taken() -> None:
    """R87: the sentence says what to convert to."""
    with pytest.raises(ScribeError, match=r"kind HEIF; what can be read is JPEG, PNG, TIFF, WebP, JPEG 2000 and GIF$"):
        inspect_image(encode(mark(), "AVIF"), "scan.avif", LIMITS)


def test_what_just_keeps_the_limits_is_taken() -> None:
    """R87: B16's limits are inclusive."""
    assert inspect_image(png(), "scan", ImageLimits(len(png()), 400 * 300, 400, 1)).width == 400


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("extension", "number"), EACH_TAKEN)
def test_bytes_that_were_changed_give_a_page_or_a_sentence(extension: str, number: int) -> None:
    """R87: whatever is wrong with a file, nothing else comes of it; what is taken can be decoded in the size that was said."""
    dice = random.Random(number)
    for _ in range(60):
        data = bytearray(TAKEN[extension][number])
        for _ in range(dice.choice((1, 2, 9))):
            data[dice.randrange(min(len(data), dice.choice((60, 400, 10_000))))] = dice.choice((0, 1, 255, dice.randrange(256)))
        with suppress(ScribeError):
            facts = inspect_image(bytes(data), "scan", LIMITS)
            assert decode_upright(bytes(data)).size == (facts.width, facts.height)


@pytest.mark.parametrize(
    ("mode", "form"), [("RGBA", "PNG"), ("LA", "PNG"), ("PA", "TIFF"), ("RGBA", "TIFF"), ("RGBA", "WEBP"), ("RGBA", "JPEG2000")]
)
def test_transparent_parts_are_white(mode: str, form: str) -> None:
    """R87: ink on transparent paper is not ink on black."""
    picture = Image.new("RGBA", (3, 1))
    picture.putdata([(0, 0, 0, 0), (0, 0, 0, 128), (0, 0, 0, 255)])
    options = {"WEBP": {"lossless": True, "exact": True}}.get(form, {})
    assert list(decode_upright(encode(picture.convert(mode), form, **options)).getdata(0)) == [255, 127, 0]


@pytest.mark.parametrize(
    ("mode", "form", "clear"),
    [("1", "PNG", 0), ("L", "PNG", 0), ("P", "PNG", 0), ("RGB", "PNG", (0, 0, 0)), ("L", "GIF", 0), ("P", "GIF", 0)],
)
def test_a_colour_that_is_transparent_is_white(mode: str, form: str, clear: Any) -> None:
    """R87: palettes and pictures without alpha may say which of their colours is none."""
    picture = Image.new(mode, (2, 1))
    picture.putpixel((1, 0), 1 if mode in ("1", "P") else 90 if mode == "L" else (90, 90, 90))
    if mode == "P":
        picture.putpalette([0, 0, 0, 90, 90, 90])
    first, second = decode_upright(encode(picture, form, transparency=clear)).getdata(0)
    assert (first, second) == (255, 255 if mode == "1" else 90)


@pytest.mark.parametrize("form", ["PNG", "TIFF", "JPEG2000"])
@pytest.mark.parametrize("values", [[0, 256, 1024, 4095], [0, 300, 40_000, 65_535]], ids=["12 bit", "16 bit"])
def test_grey_of_more_than_eight_bits_is_not_clipped(values: list[int], form: str) -> None:
    """R87: twelve bits in sixteen do not come out black."""
    data = encode(Image.fromarray(np.array([values], np.uint16)), form)
    assert list(decode_upright(data).getdata(0)) == [round(value * 255 / max(values)) for value in values]


@pytest.mark.parametrize(
    ("values", "kind", "seen"),
    [
        pytest.param([0, 0.25, 1], np.float32, [0, 64, 255], id="float"),
        pytest.param([-1, 0, 1], np.float32, [0, 128, 255], id="signed float"),
        pytest.param([0, np.nan, np.inf, 2], np.float32, [0, 255, 255, 255], id="no number"),
        pytest.param([0, 70_000, 140_000], np.int32, [0, 128, 255], id="32 bit"),
        pytest.param([0, 0, 0], np.float32, [0, 0, 0], id="black"),
        pytest.param([7, 7, 7], np.int32, [255, 255, 255], id="blank paper"),
    ],
)
def test_wide_samples_come_out_as_light_as_they_are_meant(values: list[float], kind: type, seen: list[int]) -> None:
    """R87: from zero or the lowest sample to the highest."""
    assert list(decode_upright(encode(Image.fromarray(np.array([values], kind)), "TIFF")).getdata(0)) == seen


def test_wide_samples_whose_zero_is_white() -> None:
    """R87: a TIFF may store its picture as a negative."""
    data = bytearray(encode(Image.fromarray(np.array([[0, 13_107, 65_535]], np.uint16)), "TIFF"))
    data[data.index(struct.pack("<HHI", 262, 3, 1)) + 8] = 0
    assert list(decode_upright(bytes(data)).getdata(0)) == [255, 204, 0]


@pytest.mark.parametrize(
    ("mode", "form"),
    [("P", "PNG"), ("P", "TIFF"), ("P", "GIF"), ("CMYK", "TIFF"), ("CMYK", "JPEG"), ("RGB", "JPEG"), ("LAB", "TIFF")],
)
def test_colours_survive(mode: str, form: str) -> None:
    """R87: palette, CMYK and Lab."""
    picture = Image.new("RGB", (8, 8), (200, 30, 40))
    if mode == "LAB":
        picture = ImageCms.profileToProfile(
            picture, ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB"), outputMode="LAB"
        ) or picture  # fmt: skip
    page = decode_upright(encode(picture.convert(mode), form))
    assert page.mode == "RGB" and np.abs(np.asarray(page)[4, 4].astype(int) - (200, 30, 40)).max() < 30


@pytest.mark.parametrize("mode", ["RGBA", "I;16", "CMYK"])
def test_a_page_of_many_strips_is_one_page(monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    """R87: what is computed strip by strip has no seams."""
    picture = Image.fromarray(np.arange(64 * 64, dtype=np.uint16).reshape(64, 64)) if mode == "I;16" else NOISE.convert(mode)
    whole = decode_upright(encode(picture, "TIFF"))
    monkeypatch.setattr("scribe_pipeline.engines.pictures._STRIP_PIXELS", 200)
    assert decode_upright(encode(picture, "TIFF")).tobytes() == whole.tobytes()


@pytest.mark.parametrize("sides", [(400, 300), (401, 299)])
def test_a_jpeg_2000_decoded_in_half_its_size_is_a_whole_page(monkeypatch: pytest.MonkeyPatch, sides: tuple[int, int]) -> None:
    """R87: one that is too much for its decoder keeps its size, and is refused if it is cut."""
    picture = Image.radial_gradient("L").resize(sides).convert("RGB")
    data = encode(picture, "JPEG2000")
    exact = np.asarray(decode_upright(data)).astype(int)
    monkeypatch.setattr("scribe_pipeline.engines.pictures._TILE_BYTES", 400 * 300 * 6)
    facts = inspect_image(data, "scan.jp2", LIMITS)
    coarse = decode_upright(data)
    assert (facts.width, facts.height) == coarse.size == sides
    difference = np.abs(np.asarray(coarse).astype(int) - exact)
    assert 0 < difference.mean() < 3
    with pytest.raises(ScribeError, match="damaged"):
        inspect_image(data[:-1], "scan.jp2", LIMITS)
