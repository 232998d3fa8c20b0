"""From the bytes of a scan to its picture: whether it can be decoded to the end, and decoding it upright, in RGB.

A scan may have as many pixels as the limits allow, so that no more than two copies of its pixels are ever held: what has to be
computed is computed strip by strip, and what is only to be checked is not copied at all.
"""

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageCms, UnidentifiedImageError

from scribe_pipeline.engines.containers import ImageFacts, ImageLimits
from scribe_pipeline.engines.formats import TAKEN, image_extension, open_image
from scribe_pipeline.errors import Category, ScribeError

# What the EXIF orientation asks for, by its number; 1 is upright.
_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_SIDEWAYS = (5, 6, 7, 8)
_WIDE_MODES = ("F", "I", "I;16", "I;16B", "I;16L", "I;16N")
_PHOTOMETRIC, _WHITE_IS_ZERO = 262, 0
# What decoders raise for bytes that are not what they claim to be.
_DECODE_ERRORS = (
    OSError, SyntaxError, ValueError, TypeError, EOFError, LookupError, OverflowError, struct.error, Image.DecompressionBombError,
)  # fmt: skip
_STRIP_PIXELS = 1_000_000
# What decoding one tile of a JPEG 2000 file may need: OpenJPEG holds four bytes a sample, and the finished ones besides.
_TILE_BYTES = 1_700_000_000
_TILE_BYTES_A_SAMPLE = 6
_CODESTREAM = b"\xff\x4f\xff\x51"

_Box = tuple[int, int, int, int]


class _Stored(NamedTuple):
    """A picture as it is stored, its full size, and the number of the orientation that it still asks for."""

    picture: Image.Image
    size: tuple[int, int]
    orientation: int


def inspect_image(data: bytes, name: str, limits: ImageLimits) -> ImageFacts:
    """Say what a file holds, having decoded all of its picture; of several, the first.

    Raises ScribeError (empty, too_large, unsupported_type, damaged) with a sentence that names the file.
    """
    if not data:
        raise ScribeError(Category.EMPTY, f"{name} is empty")
    if len(data) > limits.max_bytes:
        raise ScribeError(Category.TOO_LARGE, f"{name} has more than the {limits.max_bytes:,} bytes allowed")
    extension = image_extension(data[:16])
    if extension not in TAKEN:
        *most, last = (spoken for _, _, spoken in TAKEN.values())
        kind = "no picture" if extension is None else f"a picture of the kind {extension.upper()}"
        raise ScribeError(Category.UNSUPPORTED_TYPE, f"{name} is {kind}; what can be read is {', '.join(most)} and {last}")
    _, media_type, spoken = TAKEN[extension]
    try:
        _, size, orientation = _read(data, extension, lambda image: _check_size(image, name, limits))
    except UnidentifiedImageError:
        raise ScribeError(Category.DAMAGED, f"{name} is damaged, or a kind of {spoken} that cannot be read") from None
    except _DECODE_ERRORS:
        raise ScribeError(Category.DAMAGED, f"{name} is damaged: its picture cannot be decoded to the end") from None
    width, height = reversed(size) if orientation in _SIDEWAYS else size
    return ImageFacts(media_type, extension, width, height)


def decode_upright(data: bytes) -> Image.Image:
    """Return a checked scan as an upright RGB picture; transparent parts are white. Raises ScribeError (damaged)."""
    try:
        picture, size, orientation = _read(data, image_extension(data[:16]) or "", lambda _: None)
        page = _rgb(picture)
    except _DECODE_ERRORS:
        raise ScribeError(Category.DAMAGED, "a stored scan cannot be decoded") from None
    del picture  # which may be as large again
    if page.size != size:
        page = page.resize(size)
    turn = _TURNS.get(orientation)
    return page if turn is None else page.transpose(turn)


def _check_size(image: Image.Image, name: str, limits: ImageLimits) -> None:
    # of a moving picture, the decoder holds two whole ones more
    still = image.format != "WEBP" or not getattr(image, "is_animated", False)
    max_pixels = limits.max_pixels if still else limits.max_pixels // 2
    if max(image.size) > limits.max_side or image.width * image.height > max_pixels:
        size = f"{image.width:,} x {image.height:,} pixels"
        allowed = f"{max_pixels:,} pixels, {limits.max_side:,} a side"
        raise ScribeError(Category.TOO_LARGE, f"{name} has {size}, more than the {allowed} allowed")


def _read(data: bytes, extension: str, check: Callable[[Image.Image], None]) -> _Stored:
    """Decode a picture that passes the check, which sees what its header says."""
    with open_image(data, extension) as image:
        check(image)
        size = image.size
        if extension == "webp":
            return _Stored(_decode_webp(data), size, _orientation(image))
        if extension == "jp2":
            image.reduce = _reduction(data, size)
            image.load()
            return _Stored(image, size, _orientation(image))
        image.load()  # which turns a TIFF already, and takes its orientation away
        if image.mode == "P" and image.palette is None:
            raise ValueError("no palette")
        return _Stored(image, image.size, _orientation(image))


def _orientation(image: Image.Image) -> int:
    """Return the number that EXIF or else XMP gives; an orientation that cannot be read asks for nothing."""
    try:
        orientation = image.getexif().get(_ORIENTATION, 1)
    except _DECODE_ERRORS:
        return 1
    return orientation if orientation in _TURNS else 1


def _decode_webp(data: bytes) -> Image.Image:
    # Pillow decodes a WebP as one of many frames and needs twice as much memory.
    import cv2

    try:
        pixels = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_UNCHANGED)
    except cv2.error:
        pixels = None
    if pixels is None:
        raise OSError("OpenCV cannot decode it")
    mode = {3: "RGB", 4: "RGBA"}[pixels.shape[2]]
    return Image.frombuffer(mode, pixels.shape[1::-1], pixels, "raw", "BGRA"[: len(mode)], 0, 1)


def _reduction(data: bytes, size: tuple[int, int]) -> int:
    """Return how often a JPEG 2000 picture is to be halved so that its tiles can be decoded: once, or not at all."""
    header = struct.unpack_from(">8IH", data, data.index(_CODESTREAM) + 8)
    tile_width, tile_height, samples = header[4], header[5], header[8]
    return int(min(tile_width, size[0]) * min(tile_height, size[1]) * samples * _TILE_BYTES_A_SAMPLE > _TILE_BYTES)


def _rgb(picture: Image.Image) -> Image.Image:
    """Return the picture in RGB on white: itself, if it is so already."""
    if picture.mode == "RGB" and not picture.has_transparency_data:
        return picture
    convert = _conversion(picture)
    page = Image.new("RGB", picture.size, "white")
    for box in _strips(picture):
        strip = convert(picture.crop(box))
        page.paste(strip.convert("RGB"), box, strip.getchannel("A") if strip.mode == "RGBA" else None)
    return page


def _strips(picture: Image.Image) -> Iterator[_Box]:
    rows = max(1, _STRIP_PIXELS // picture.width)
    for top in range(0, picture.height, rows):
        yield 0, top, picture.width, min(top + rows, picture.height)


def _conversion(picture: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """Return what makes RGB, RGBA or grey of eight bits of the picture's strips."""
    if picture.mode in _WIDE_MODES:
        return _scaling(picture)
    if picture.mode == "LAB":
        profiles = ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB")
        transform = ImageCms.buildTransform(*profiles, "LAB", "RGB")
        return lambda strip: ImageCms.applyTransform(strip, transform) or strip
    mode = "RGBA" if picture.has_transparency_data else "RGB"
    return lambda strip: strip.convert(mode)


def _scaling(picture: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """Return what scales strips to eight bits: zero, or what is less, is black, the highest sample of the picture is white.

    Twelve bits in sixteen, or floating point from 0 to 1, come out as light as they are meant.
    """
    low = high = 0.0
    for box in _strips(picture):
        samples = np.asarray(picture.crop(box))
        samples = samples[np.isfinite(samples)]
        low, high = min(low, samples.min(initial=0)), max(high, samples.max(initial=0))
    black, white = (high, low) if getattr(picture, "tag_v2", {}).get(_PHOTOMETRIC) == _WHITE_IS_ZERO else (low, high)
    scale = 255 / ((white - black) or 1)

    def scaled(strip: Image.Image) -> Image.Image:
        samples = np.nan_to_num(np.asarray(strip, np.float32), nan=white, posinf=high, neginf=low)
        return Image.fromarray(np.rint((samples - np.float32(black)) * np.float32(scale)).astype(np.uint8))

    return scaled
