"""How much memory a process needs for the largest scans that are taken, of every format and kind of pixel.

Each picture is made, validated and decoded in a process of its own, one after the other; the table shows the highest resident
memory of the latter two. `decode` ends as the engines get the page: upright, and as an array. With fewer pixels than are allowed,
what is above the bare process is scaled up. The exit code is 1 if anything needs more than 2 GiB.

    python benchmarks/memory.py [--megapixels N] [KIND...]      default: 150 megapixels of every kind
    python benchmarks/memory.py --segment [...]                 the same with Kraken's lines, at most 4 GiB
"""

import argparse
import resource
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
from PIL import Image

from scribe_pipeline.config import Settings
from scribe_pipeline.engines import ImageLimits, decode_upright, inspect_image, tasks
from scribe_pipeline.engines.registry import transcriber

GIB = 1024**3
MOST, MOST_WITH_ENGINES = 2 * GIB, 4 * GIB
WIDEST_WEBP, LIMIT = 16_383, 30_000
ORIENTATION = 0x0112
Size = tuple[int, int]


def picture(mode: str, size: Size) -> Image.Image:
    """A page full of specks."""
    specks = np.random.default_rng(1).random((256, 256)) > 0.9
    tile = Image.fromarray(np.where(specks, 60, 220).astype(np.uint8)).convert(mode)
    page = Image.new(mode, size)
    for side, whole in ((0, size[0]), (1, size[1])):
        page.paste(tile)
        done = 256
        while done < whole:
            box = (0, 0, done, 256) if side == 0 else (0, 0, size[0], done)
            page.paste(page.crop(box), (done, 0) if side == 0 else (0, done))
            done *= 2
        tile = page.crop((0, 0, size[0], 256))
    return page


def by_pillow(path: Path, size: Size, mode: str, form: str, **options: object) -> None:
    """Write what Pillow can write."""
    if options.pop("sideways", False):
        exif = Image.Exif()
        exif[ORIENTATION] = 6
        options["exif"] = exif
    picture(mode, size).save(path, form, **options)


def rows(size: Size, bits: int, samples: int) -> Iterator[bytes]:
    """The rows of a picture of any depth, one at a time."""
    pattern = np.random.default_rng(1).integers(0, 4000, 64 * samples)
    if bits == 1:
        row = np.packbits(np.resize(pattern % 2, size[0])).tobytes()
    else:
        row = np.resize(pattern, size[0] * samples).astype({8: "u1", 16: "<u2", 32: "<f4"}[bits]).tobytes()
    for _ in range(size[1]):
        yield row


def png(path: Path, size: Size, bits: int, colour: int, samples: int) -> None:
    """Write a PNG of any depth; colour is 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGBA."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    packer = zlib.compressobj(1)
    data = b"".join([packer.compress(b"\0" + row) for row in rows(size, bits, samples)] + [packer.flush()])
    palette = chunk(b"PLTE", bytes(range(256)) * 3) + chunk(b"tRNS", bytes([0, 255])) if colour == 3 else b""
    header = struct.pack(">IIBBBBB", *size, bits, colour, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + palette + chunk(b"IDAT", data) + chunk(b"IEND", b""))


def tiff(path: Path, size: Size, bits: int, samples: int, photometric: int, sample_format: int = 1) -> None:
    """Write a TIFF of any depth as one compressed strip, which is the hardest to decode."""
    packer = zlib.compressobj(1)
    data = b"".join([packer.compress(row) for row in rows(size, bits, samples)] + [packer.flush()])
    start = 8 + 2 + 12 * 11 + 4
    lists = struct.pack(f"<{2 * samples}H", *[bits] * samples, *[sample_format] * samples)
    # one value of two bytes stands in its entry; several stand behind the directory
    inline, behind = (bits, sample_format), (start, start + 2 * samples)
    depth, kind = inline if samples == 1 else behind
    entries = [
        (256, 4, 1, size[0]), (257, 4, 1, size[1]), (258, 3, samples, depth), (259, 3, 1, 8), (262, 3, 1, photometric),
        (273, 4, 1, start + len(lists)), (277, 3, 1, samples), (278, 4, 1, size[1]), (279, 4, 1, len(data)), (284, 3, 1, 1),
        (339, 3, samples, kind),
    ]  # fmt: skip
    directory = b"".join(struct.pack("<HHII", *entry) for entry in entries)
    path.write_bytes(struct.pack("<2sHIH", b"II", 42, 8, len(entries)) + directory + bytes(4) + lists + data)


LOSSY_JP2 = {"irreversible": True, "quality_mode": "rates", "quality_layers": [20]}
Maker = Callable[[Path, Size], None]
KINDS: dict[str, Maker] = {
    "png 1 bit": partial(png, bits=1, colour=0, samples=1),
    "png grey 16 bit": partial(png, bits=16, colour=0, samples=1),
    "png palette with transparency": partial(png, bits=8, colour=3, samples=1),
    "png rgb": partial(png, bits=8, colour=2, samples=3),
    "png rgb 16 bit": partial(png, bits=16, colour=2, samples=3),
    "png rgba": partial(png, bits=8, colour=6, samples=4),
    "png rgba 16 bit": partial(png, bits=16, colour=6, samples=4),
    "jpeg grey": partial(by_pillow, mode="L", form="JPEG"),
    "jpeg rgb": partial(by_pillow, mode="RGB", form="JPEG"),
    "jpeg rgb sideways": partial(by_pillow, mode="RGB", form="JPEG", sideways=True),
    "jpeg rgb progressive": partial(by_pillow, mode="RGB", form="JPEG", progressive=True, subsampling=0, quality=60),
    "jpeg cmyk": partial(by_pillow, mode="CMYK", form="JPEG"),
    "jpeg cmyk progressive": partial(by_pillow, mode="CMYK", form="JPEG", progressive=True, subsampling=0, quality=60),
    "tiff 1 bit group 4": partial(by_pillow, mode="1", form="TIFF", compression="group4"),
    "tiff grey 16 bit": partial(tiff, bits=16, samples=1, photometric=1),
    "tiff grey float": partial(tiff, bits=32, samples=1, photometric=1, sample_format=3),
    "tiff rgb": partial(tiff, bits=8, samples=3, photometric=2),
    "tiff rgb sideways": partial(by_pillow, mode="RGB", form="TIFF", compression="tiff_lzw", sideways=True),
    "tiff rgb strips of jpeg": partial(by_pillow, mode="RGB", form="TIFF", compression="jpeg", quality=5),
    "tiff rgb 16 bit": partial(tiff, bits=16, samples=3, photometric=2),
    "tiff cmyk": partial(tiff, bits=8, samples=4, photometric=5),
    "tiff cmyk 16 bit": partial(tiff, bits=16, samples=4, photometric=5),
    "tiff lab": partial(tiff, bits=8, samples=3, photometric=8),
    "webp rgb lossy": partial(by_pillow, mode="RGB", form="WEBP", method=0, quality=50),
    "webp rgba lossless": partial(by_pillow, mode="RGBA", form="WEBP", lossless=True, method=0, quality=0, exact=True),
    "jp2 rgb untiled": partial(by_pillow, mode="RGB", form="JPEG2000", **LOSSY_JP2),
    "jp2 rgb tiled": partial(by_pillow, mode="RGB", form="JPEG2000", tile_size=(1024, 1024), **LOSSY_JP2),
    "gif": partial(by_pillow, mode="P", form="GIF"),
}


def validate(path: Path) -> None:
    """As a worker process does."""
    settings = Settings()
    limits = ImageLimits.of(settings)
    inspect_image(path.read_bytes(), path.name, limits)


def decode(path: Path) -> None:
    """As a worker process does that is to read lines."""
    np.asarray(decode_upright(path.read_bytes()))


def segment(path: Path) -> None:
    """As a worker process does that has read lines before and is to find some."""
    transcriber("local", "PP-OCRv6_rec_small")
    tasks.segment(str(path.parent), path.name, "kraken-blla", with_preview=True)


def nothing(path: Path) -> None:
    """What a process needs that does nothing."""


STEPS = {step.__name__: step for step in (nothing, validate, decode, segment)}


def peak(step: str, path: Path) -> int:
    """Run a step in a process of its own and return its highest resident memory in bytes."""
    done = subprocess.run([sys.executable, __file__, "--step", step, str(path)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{step} of {path.name}: {done.stderr.strip().splitlines()[-1]}")
    return int(done.stdout) * 1024


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", help=", ".join(KINDS))
    parser.add_argument("--megapixels", type=float, default=150)
    parser.add_argument("--segment", action="store_true")
    parser.add_argument("--step", choices=STEPS, help=argparse.SUPPRESS)
    parser.add_argument("--make", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.step or arguments.make:
        path = Path(arguments.kinds[0])
        if arguments.make:
            Image.MAX_IMAGE_PIXELS = None
            kind, width, height = arguments.make.split(":")
            KINDS[kind](path, (int(width), int(height)))
        else:
            STEPS[arguments.step](path)
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        return
    steps, most = (("segment",), MOST_WITH_ENGINES) if arguments.segment else (("validate", "decode"), MOST)
    print("GiB at 150 megapixels\n")
    print("kind".ljust(32) + "file MB".rjust(8) + "".join(step.rjust(10) for step in steps))
    too_much = False
    for kind in arguments.kinds or KINDS:
        with tempfile.TemporaryDirectory(prefix="scribe-bench-") as folder:
            path = Path(folder) / kind.replace(" ", "-")
            # twice as wide as high, which is what the segmentor's network needs most for
            width = min(round((arguments.megapixels * 2e6) ** 0.5), WIDEST_WEBP if kind.startswith("webp") else LIMIT)
            height = int(arguments.megapixels * 1e6 / width)
            scale = 150e6 / (width * height)
            make = [sys.executable, __file__, "--make", f"{kind}:{width}:{height}", str(path)]
            subprocess.run(make, check=True, stderr=subprocess.DEVNULL)  # libjpeg has remarks on what is made
            bare = peak("nothing", path)
            peaks = [bare + scale * max(0, peak(step, path) - bare) for step in steps]
            size = path.stat().st_size / 1e6
        print(kind.ljust(32) + f"{size:8.1f}" + "".join(f"{value / GIB:10.2f}" for value in peaks), flush=True)
        too_much |= max(peaks) > most
    raise SystemExit(too_much)


if __name__ == "__main__":
    main()
