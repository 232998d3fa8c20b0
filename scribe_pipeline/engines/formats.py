"""The formats that scans come in: told by their first bytes, opened as far as their headers. Decoding is `pictures`'s."""

import io
import struct

from PIL import Image

from scribe_pipeline.engines.tiff_pages import Tiff

# What a format is taken under: Pillow's name of it, its media type, what a person calls it; by the extension of stored objects.
TAKEN = {
    "jpg": ("JPEG", "image/jpeg", "JPEG"),
    "png": ("PNG", "image/png", "PNG"),
    "tiff": ("TIFF", "image/tiff", "TIFF"),
    "webp": ("WEBP", "image/webp", "WebP"),
    "jp2": ("JPEG2000", "image/jp2", "JPEG 2000"),
    "gif": ("GIF", "image/gif", "GIF"),
}
_BIG_ENDIAN_BIGTIFF = b"MM\0+"
# The first bytes of image formats, taken or not, and the extension each goes by.
_SIGNATURES = (
    (b"\xff\xd8\xff", "jpg"),
    (b"\x89PNG\r\n", "png"),
    (b"II*\0", "tiff"),
    (b"MM\0*", "tiff"),
    (b"II+\0", "tiff"),
    (_BIG_ENDIAN_BIGTIFF, "tiff"),
    (b"GIF8", "gif"),
    (b"\0\0\0\x0cjP  ", "jp2"),
    (b"\xff\x4f\xff\x51", "jp2"),
)
_HEIF_BRANDS = (b"heic", b"heix", b"hevc", b"mif1", b"msf1", b"avif")
# Of a PNG, what is its picture, and the texts that may say how it stands.
_PNG_CHUNKS = (b"IHDR", b"PLTE", b"tRNS", b"IDAT", b"eXIf", b"IEND")
_PNG_TEXTS = (b"XML:com.adobe.xmp\0", b"Raw profile type exif\0")
_PNG_SIGNATURE = 8


def image_extension(start: bytes) -> str | None:
    """Return the extension of the format that a file's first 16 bytes announce, or None if they are no image's."""
    if start[:4] == b"RIFF" and start[8:12] == b"WEBP":
        return "webp"
    if start[:2] == b"BM" and start[6:10] == bytes(4):
        return "bmp"
    if start[4:8] == b"ftyp" and start[8:12] in _HEIF_BRANDS:
        return "heif"
    return next((extension for signature, extension in _SIGNATURES if start.startswith(signature)), None)


def open_image(data: bytes, extension: str) -> Image.Image:
    """Return the picture that a file of this kind holds, its first page if it has several, not decoded yet.

    Raises what Pillow does for bytes that are not what they claim to be.
    """
    # The limits are ours, checked from the header before a pixel is decoded; Pillow's own is below what a large scan has.
    Image.MAX_IMAGE_PIXELS = None
    if extension == "png":
        data = _picture_of_png(data)
    elif data.startswith(_BIG_ENDIAN_BIGTIFF):
        data = Tiff(data).page(1)  # Pillow reads BigTIFF in the other byte order only
    image = Image.open(io.BytesIO(data), formats=(TAKEN[extension][0],))
    if extension == "tiff":
        image.seek(Tiff(data).first)
    return image


def _picture_of_png(data: bytes) -> bytes:
    """Leave out what Pillow would stumble over though the picture does not need it: profiles, texts, animations."""
    kept, place, kind = [data[:_PNG_SIGNATURE]], _PNG_SIGNATURE, b""
    while kind != b"IEND":
        length, kind = struct.unpack_from(">I4s", data, place)
        end = place + length + 12
        if kind in _PNG_CHUNKS or data.startswith(_PNG_TEXTS, place + 8):
            kept.append(data[place:end])
        place = end
    return b"".join(kept)
