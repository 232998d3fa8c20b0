"""The pages of a TIFF: which there are, and that each comes out as it went in."""

import io
import struct
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scribe_pipeline.engines import Tiff, decode_upright, inspect_image
from tests.bad_images import FOLDER, needed
from tests.houses import LIMITS

SIDE = 16


def noise(number: int, mode: str = "RGB") -> Image.Image:
    """A picture that is unlike the others."""
    pixels = np.random.default_rng(number).integers(0, 256, (64, 48, 3), dtype=np.uint8)
    return Image.fromarray(pixels).convert(mode)


def by_pillow(modes: list[str], **options: Any) -> bytes:
    """A TIFF with a page of each mode."""
    out = io.BytesIO()
    first, *rest = (noise(number, mode) for number, mode in enumerate(modes))
    first.save(out, "TIFF", save_all=True, append_images=rest, **options)
    return out.getvalue()


def by_hand(levels: list[int], types: dict[int, dict[int, int]] | None = None, *, order: str = "<", big: bool = False) -> bytes:
    """A TIFF of even grey pictures; `types` gives more tags to some of them, `order` and `big` say how numbers are written."""
    place, count = ("Q", "Q") if big else ("I", "H")
    data = (b"II" if order == "<" else b"MM") + struct.pack(f"{order}H", 43 if big else 42)
    data += struct.pack(f"{order}HH", 8, 0) if big else b""
    link = len(data)
    data += bytes(struct.calcsize(place))
    for number, level in enumerate(levels):
        strip = len(data)
        data += bytes([level]) * (SIDE * SIDE)
        tags = {256: SIDE, 257: SIDE, 258: 8, 259: 1, 262: 1, 273: strip, 277: 1, 278: SIDE, 279: SIDE * SIDE}
        tags |= (types or {}).get(number, {})
        # the pointer of the last directory, or of the header, to this one
        data = data[:link] + struct.pack(order + place, len(data)) + data[link + struct.calcsize(place) :]
        data += struct.pack(order + count, len(tags))
        for tag, value in sorted(tags.items()):
            data += struct.pack(order + f"HH{place}{place}", tag, 16 if big else 4, 1, value)
        link = len(data)
        data += bytes(struct.calcsize(place))
    return data


def levels(data: bytes) -> list[int]:
    """The grey of each page."""
    tiff = Tiff(data)
    return [decode_upright(tiff.page(number)).getpixel((0, 0))[0] for number in range(1, tiff.count + 1)]


@pytest.mark.parametrize(
    ("modes", "options"),
    [
        pytest.param(["RGB", "L", "1"], {}, id="raw"),
        pytest.param(["RGB", "CMYK"], {"compression": "tiff_lzw"}, id="lzw"),
        pytest.param(["L", "P"], {"compression": "tiff_adobe_deflate", "strip_size": 500}, id="many strips"),
        pytest.param(["1", "1", "1"], {"compression": "group4"}, id="fax"),
        pytest.param(["RGB", "RGB"], {"compression": "jpeg"}, id="jpeg"),
        pytest.param(["RGB", "I;16", "F"], {"big_tiff": True}, id="BigTIFF"),
    ],
)
def test_each_page_is_what_it_was_in_its_file(modes: list[str], options: dict[str, Any]) -> None:
    """R85: nothing is compressed anew; page 1 of what is taken out is the page itself."""
    data = by_pillow([mode if mode != "I;16" else "I" for mode in modes], **options)
    tiff = Tiff(data)
    assert tiff.count == len(modes)
    for number in range(1, tiff.count + 1):
        page = tiff.page(number)
        assert Tiff(page).count == 1 and len(page) < len(data)
        with Image.open(io.BytesIO(data)) as whole, Image.open(io.BytesIO(page)) as alone:
            whole.seek(number - 1)
            assert alone.mode == whole.mode and alone.tobytes() == whole.tobytes()
        assert tiff.page(number) == page == Tiff(data).page(number), "always the same bytes"


@pytest.mark.parametrize("big", [False, True])
@pytest.mark.parametrize("order", ["<", ">"])
def test_numbers_may_be_written_either_way(order: str, big: bool) -> None:
    """R85: TIFF and BigTIFF of both byte orders."""
    assert levels(by_hand([10, 20, 30], order=order, big=big)) == [10, 20, 30]


@pytest.mark.parametrize("kind", [{254: 1}, {254: 4}, {255: 2}], ids=["reduced", "mask", "reduced, as TIFF 5 said it"])
def test_copies_and_masks_are_no_pages(kind: dict[int, int]) -> None:
    """R85: a thumbnail is no page, not even in front of the page it belongs to."""
    data = by_hand([10, 20, 30, 40], {0: kind, 2: kind, 3: {254: 2}})
    assert levels(data) == [20, 40]
    assert decode_upright(data).getpixel((0, 0)) == (20, 20, 20)
    assert levels(by_hand([10, 20], {0: kind, 1: kind})) == [10], "but a file has a page"


def test_directories_inside_a_page_are_left_out() -> None:
    """R85: what an EXIF directory or a thumbnail points to is not where it was any more."""
    page = Tiff(by_hand([10, 20], {1: {330: 8, 34665: 8}})).page(2)
    with Image.open(io.BytesIO(page)) as image:
        assert {330, 34665}.isdisjoint(image.tag_v2) and image.tag_v2[258] == (8,)


def test_a_chain_that_comes_back_ends() -> None:
    """R87: a directory that was seen is no further page."""
    data = by_hand([10, 20])
    first = data[4:8]
    assert levels(data[:-4] + first) == [10, 20]


@pytest.mark.parametrize("next_directory", [3, 2**32 - 1])
def test_a_page_that_is_not_where_it_should_be_is_missed(next_directory: int) -> None:
    """R87: it counts, but nothing can be taken out of the file."""
    data = by_hand([10])
    tiff = Tiff(data[:-4] + struct.pack("<I", next_directory))
    assert tiff.count == 2 and tiff.page(2) == b""
    assert levels(data) == [10]


@pytest.mark.parametrize("tags", [{273: 2**31}, {279: 0}, {258: 2**31}], ids=["strip", "length", "depth"])
def test_a_page_whose_pieces_are_not_there_is_damaged_alone(tags: dict[int, int]) -> None:
    """R87: the others are not harmed."""
    tiff = Tiff(by_hand([10, 20, 30], {1: tags}))
    assert tiff.count == 3
    assert decode_upright(tiff.page(3)).getpixel((0, 0)) == (30, 30, 30)
    with pytest.raises(Exception, match="scan"):
        inspect_image(tiff.page(2), "scan", LIMITS)


def test_a_page_is_not_larger_than_its_file_allows() -> None:
    """R87: a thousand strips that are all the whole file are no page."""
    data = by_hand([10, 20])
    strips = len(data)
    data += struct.pack("<1000I", *[8] * 1000) + struct.pack("<1000I", *[len(data)] * 1000)
    last = data.index(struct.pack("<HHI", 273, 4, 1), data.index(struct.pack("<HHI", 273, 4, 1)) + 1)
    data = data[:last] + struct.pack("<HHII", 273, 4, 1000, strips) + data[last + 12 :]
    lengths = data.index(struct.pack("<HHI", 279, 4, 1), last)
    data = data[:lengths] + struct.pack("<HHII", 279, 4, 1000, strips + 4000) + data[lengths + 12 :]
    assert Tiff(data).count == 2 and Tiff(data).page(2) == b""


def test_old_jpeg_keeps_what_lies_outside_its_strips() -> None:
    """R85: with a file of ../shared whose JPEG has a tag of its own."""
    needed()
    data = (FOLDER / "old-style-jpeg-compression.tif").read_bytes()
    assert decode_upright(Tiff(data).page(1)).tobytes() == decode_upright(data).tobytes()
