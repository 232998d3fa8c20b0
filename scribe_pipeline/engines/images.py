"""Scans as pixels: what kind of file it is, decoding it upright, cutting a line out, drawing the lines on it."""

import io
import struct

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, UnidentifiedImageError

from scribe_pipeline.engines.containers import ImageFacts, ImageLimits, LineShape
from scribe_pipeline.errors import Category, ScribeError

Pixels = NDArray[np.uint8]

# Pillow's name of a format: media type and the extension that the stored object gets. MPO is JPEG with more pictures behind it.
_FORMATS = {
    "JPEG": ("image/jpeg", "jpg"),
    "MPO": ("image/jpeg", "jpg"),
    "PNG": ("image/png", "png"),
    "TIFF": ("image/tiff", "tiff"),
}
_TAKEN_EXTENSIONS = {extension for _, extension in _FORMATS.values()}
# The first bytes of image formats, taken or not, and the extension each goes by.
_SIGNATURES = (
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG\r\n", "png"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"II+\0", "tiff"),
    (b"MM\0+", "tiff"),
    (b"GIF8", "gif"),
    (b"\0\0\0\x0cjP  ", "jp2"),
    (b"\xff\x4f\xff\x51", "jp2"),
)
# What the EXIF orientation asks for, by its number; 1 is upright.
_EXIF_ORIENTATION = 0x0112
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_WIDE_MODES = ("F", "I", "I;16", "I;16B", "I;16L", "I;16N")
# What Pillow's decoders raise for bytes that are not what they claim to be.
_DECODE_ERRORS = (OSError, SyntaxError, ValueError, TypeError, EOFError, struct.error, Image.DecompressionBombError)
_PAPER_PERCENTILE = 90
_PREVIEW_WIDTH = 640


def image_extension(start: bytes) -> str | None:
    """Return the extension of the format that a file's first 16 bytes announce, or None if they are no image's."""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "webp"
    if start[:2] == b"BM" and start[6:10] == bytes(4):
        return "bmp"
    return next((extension for signature, extension in _SIGNATURES if start.startswith(signature)), None)


def inspect_image(data: bytes, name: str, limits: ImageLimits) -> ImageFacts:
    """Say what a file holds, having decoded all of it.

    Raises ScribeError (empty, too_large, unsupported_type, damaged) with a sentence that names the file.
    """
    if not data:
        raise ScribeError(Category.EMPTY, f"{name} is empty")
    if len(data) > limits.max_bytes:
        raise ScribeError(Category.TOO_LARGE, f"{name} has more than the {limits.max_bytes:,} bytes allowed")
    try:
        with _open(data) as image:
            if image.format not in _FORMATS:
                raise ScribeError(Category.UNSUPPORTED_TYPE, f"{name} is {image.format}, not JPEG, PNG or TIFF")
            if max(image.size) > limits.max_side or image.width * image.height > limits.max_pixels:
                size = f"{image.width:,} x {image.height:,} pixels"
                allowed = f"{limits.max_pixels:,} pixels, {limits.max_side:,} a side"
                raise ScribeError(Category.TOO_LARGE, f"{name} has {size}, more than the {allowed} allowed")
            if image.format == "TIFF" and getattr(image, "n_frames", 1) > 1:
                raise ScribeError(Category.UNSUPPORTED_TYPE, f"{name} holds several pages: save each as a file of its own")
            media_type, extension = _FORMATS[image.format]
            width, height = _upright(image).size
    except UnidentifiedImageError:
        if image_extension(data[:16]) in _TAKEN_EXTENSIONS:
            raise ScribeError(Category.DAMAGED, f"{name} is damaged: it ends before its picture begins") from None
        raise ScribeError(Category.UNSUPPORTED_TYPE, f"{name} is no image that can be read") from None
    except _DECODE_ERRORS:
        raise ScribeError(Category.DAMAGED, f"{name} is damaged: its picture cannot be decoded to the end") from None
    return ImageFacts(media_type, extension, width, height)


def decode_upright(data: bytes) -> Image.Image:
    """Return a checked scan as an upright RGB picture; transparent parts are white. Raises ScribeError (damaged)."""
    try:
        with _open(data) as image:
            upright = _upright(image)
            if upright.mode in _WIDE_MODES:
                # convert() would clip everything above 255 to white
                wide = np.asarray(upright, dtype=float)
                return Image.fromarray((wide / max(1.0, wide.max()) * 255).clip(0).astype(np.uint8)).convert("RGB")
            if upright.has_transparency_data:
                upright = Image.alpha_composite(Image.new("RGBA", upright.size, "white"), upright.convert("RGBA"))
            return upright.convert("RGB")
    except _DECODE_ERRORS:
        raise ScribeError(Category.DAMAGED, "a stored scan cannot be decoded") from None


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


def _upright(image: Image.Image) -> Image.Image:
    """Decode the picture and turn it as its EXIF orientation asks; an orientation that cannot be read asks for nothing."""
    image.load()  # which turns a TIFF already, and takes its orientation away
    try:
        turn = _TURNS.get(image.getexif().get(_EXIF_ORIENTATION, 1))
    except _DECODE_ERRORS:
        return image
    return image if turn is None else image.transpose(turn)


def _open(data: bytes) -> Image.Image:
    # The limits are ours, checked from the header before a pixel is decoded; Pillow's own is below what a large scan has.
    Image.MAX_IMAGE_PIXELS = None
    return Image.open(io.BytesIO(data))
