"""The exports of a page: valid, the same bytes each time, and read back with the same lines, order and text.

Kraken is the foreign reader of ALTO and PAGE, iiif-prezi3 that of the AnnotationPage; hOCR is read as XML and as HTML. The schemas
and the real pages are in ../shared; where it is not there, those tests are left out and the others stay.
"""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import iiif_prezi3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree, html

from scribe_pipeline.engines import LineShape
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.exports import FORMATS, check_formats, render
from scribe_pipeline.exports.document import read_document
from scribe_pipeline.metrics import read_ground_truth
from scribe_pipeline.pages import Image, PageRevision, plain_text
from tests.conftest import ROOT, SHARED
from tests.exporting import (
    IMAGE,
    TEXTS,
    ground_truths,
    kraken_lines,
    page_of,
    real_page,
    sample_exports,
    schema,
    with_items,
    without_repetition,
)
from tests.houses import line_shape

SCHEMAS = {"alto": "alto-4-4.xsd", "page": "pagecontent-2019-07-15.xsd"}
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason=f"schemas and real pages are in {SHARED}, which is not here")
XHTML = "{http://www.w3.org/1999/xhtml}"
# What a title may say, by the class of the element; each property stands once, in this order.
TITLES = {
    "ocr_page": r'image "[^"]+"; bbox 0 0 \d+ \d+; ppageno \d+',
    "ocr_carea": r"bbox( \d+){4}",
    "ocr_par": r"bbox( \d+){4}",
    "ocr_line": r"bbox( \d+){4}; baseline -?[\d.]+ -?[\d.]+; poly( \d+){6,}",
    "ocrx_word": r"bbox( \d+){4}(; x_wconf \d+)?",
}
WITHIN = {"ocr_carea": "ocr_page", "ocr_par": "ocr_carea", "ocr_line": "ocr_par", "ocrx_word": "ocr_line"}


def in_xml(char: str) -> bool:
    """Whether XML 1.0 can hold the character, as its production 2 says."""
    code = ord(char)
    return char in "\t\n\r" or 0x20 <= code <= 0xD7FF or 0xE000 <= code <= 0xFFFD or 0x10000 <= code <= 0x10FFFF


def as_exported(text: str) -> str:
    """What a text becomes: white space is one space, but where a line may not be broken; what XML cannot hold is left out."""
    spaced = "".join(" " if char.isspace() and char not in "\u00a0\u2007\u202f" else char for char in text)
    return " ".join(filter(None, "".join(filter(in_xml, spaced)).split(" ")))


def check_exports(image: Image, page: PageRevision, folder: Path) -> None:
    """See that every reader finds in the exports what the page says."""
    exports, lines = render(image, page), list(read_document(image, page).lines)
    for name, file in SCHEMAS.items():
        if SHARED.is_dir():
            schema(file).assertValid(etree.fromstring(exports[name]))
        found = kraken_lines(exports[name], folder)
        assert [line.id for line in found] == [line.id for line in lines]
        # Kraken takes a String without content for a space
        assert [line.text.strip(" ") for line in found] == [line.text for line in lines]
        assert [line.baseline for line in found] == [without_repetition(line.baseline) for line in lines]
        assert [line.boundary for line in found] == [without_repetition(line.polygon) for line in lines]
        assert [line.base_dir == "R" for line in found] == [line.right_to_left for line in lines]
    assert [line.text for line in read_back(exports["page"], folder)] == [line.text for line in lines]
    assert list(hocr_texts(exports["hocr"])) == [line.text for line in lines]
    assert exports["txt"].decode() == "".join(f"{line.text}\n" for line in lines if line.text)
    assert exports["json"].decode() == page.payload
    iiif_prezi3.AnnotationPage.model_validate_json(exports["json"])


def read_back(data: bytes, folder: Path) -> tuple[object, ...]:
    """The lines of an export as this project's own reader of ground truth sees them."""
    (folder / "back.xml").write_bytes(data)
    return read_ground_truth(folder / "back.xml")


def hocr_texts(data: bytes) -> Iterator[str]:
    """The text of each line, having seen that the document is what hOCR 1.2 asks for, to a reader of XML and to one of HTML."""
    root = etree.fromstring(data, etree.XMLParser(load_dtd=False, no_network=True))
    named = {meta.get("name"): meta.get("content") for meta in root.iter(f"{XHTML}meta")}
    assert {"ocr-system", "ocr-capabilities"} <= set(named)
    elements = [element for element in root.iter() if element.get("class")]
    assert {element.get("class") for element in elements} <= set(named["ocr-capabilities"].split())
    assert [element.get("class") for element in elements].count("ocr_page") == 1
    for element in elements:
        kind, title = element.get("class"), element.get("title")
        assert re.fullmatch(TITLES[kind], title), title
        assert kind == "ocr_page" or element.getparent().get("class") == WITHIN[kind]
        x0, y0, x1, y1 = map(int, re.search(r"bbox (\d+) (\d+) (\d+) (\d+)", title).groups())
        assert x0 < x1 and y0 < y1
    texts = ["".join(line.itertext()) for line in root.iter(f"{XHTML}span") if line.get("class") == "ocr_line"]
    again = html.document_fromstring(data, parser=html.HTMLParser(encoding="utf-8"))
    assert [line.get("id") for line in again.iterfind(".//p/span")] == [
        e.get("id") for e in elements if e.get("class") == "ocr_line"
    ]
    assert [element.get("id") for element in again.iterfind(".//*[@class]")] == [element.get("id") for element in elements]
    ids = [element.get("id") for element in elements]
    assert len(set(ids)) == len(ids)
    yield from texts


@needs_shared
@pytest.mark.parametrize("ground_truth", ground_truths(), ids=lambda path: path.stem)
def test_real_pages(ground_truth: Path, tmp_path: Path) -> None:
    """R163, R165: every page of ../shared is valid in every format and comes back line by line, in its order, letter by letter."""
    image, page = real_page(ground_truth)
    check_exports(image, page, tmp_path)
    texts = [as_exported(line.text) for line in read_ground_truth(ground_truth)]
    assert [line.text for line in read_document(image, page).lines] == texts


@pytest.mark.parametrize("text", TEXTS)
def test_any_text(text: str, tmp_path: Path) -> None:
    """R165: right-to-left, astral, combining and private characters, what XML escapes and what it cannot hold."""
    page = page_of(IMAGE, [line_shape(20), line_shape(60)], [text, "next"])
    check_exports(IMAGE, page, tmp_path)
    assert render(IMAGE, page)["txt"].decode() == f"{as_exported(text)}\nnext\n"


@pytest.mark.parametrize("texts", [(), ("",), ("", "", ""), ("one", "", "three")], ids=str)
def test_lines_without_text(texts: tuple[str, ...], tmp_path: Path) -> None:
    """R163: a line that was not read keeps its place in every format; a page without lines has its exports too."""
    page = page_of(IMAGE, [line_shape(20 + 40 * row) for row in range(len(texts))], texts)
    check_exports(IMAGE, page, tmp_path)
    assert len(kraken_lines(render(IMAGE, page)["alto"], tmp_path)) == len(texts)


def test_blocks_and_words_of_the_page(tmp_path: Path) -> None:
    """R163: regions and words that the page knows are in every format under the same names."""
    page = page_of(IMAGE, [line_shape(20), line_shape(60), line_shape(200)], ["one two", "three", "four"])
    page = with_items(page, ("block", "0,10,400,130", ""), ("word", "20,22,50,20", "one"), ("word", "200,22,60,20", "two"))
    check_exports(IMAGE, page, tmp_path)
    exports = render(IMAGE, page)
    for name, attribute in (("alto", "ID"), ("page", "id"), ("hocr", "id")):
        found = etree.fromstring(exports[name]).xpath(f"//@{attribute}")
        assert {block.id for block in read_document(IMAGE, page).blocks} < set(found), name
        assert sum(value.startswith("word-") for value in found) == 2


def test_what_alto_says_of_a_word() -> None:
    """R163: place, text and confidence, in an order that stays."""
    root = etree.fromstring(render(IMAGE, page_of(IMAGE, [line_shape(20)], ["<a> b"], confidence=1 / 3))["alto"])
    strings = [dict(string.attrib) for string in root.iter("{*}String")]
    line = root.find(".//{*}TextLine").get("ID")
    assert [list(string.values()) for string in strings] == [
        [f"{line}-1", "10", "20", "190", "30", "<a>", "0.3333"],
        [f"{line}-2", "200", "20", "190", "30", "b", "0.3333"],
    ]
    assert root.findtext(".//{*}fileName") == "box/scan 1.png"
    assert root.find(".//{*}Page").attrib == {"ID": "page", "PHYSICAL_IMG_NR": "1", "WIDTH": "400", "HEIGHT": "300"}


def test_what_page_xml_says_of_a_line() -> None:
    """R163: outline, baseline and text with its confidence; the reading order; the time of the revision."""
    root = etree.fromstring(render(IMAGE, page_of(IMAGE, [line_shape(20)], ["a b"]))["page"])
    line = root.find(".//{*}TextLine")
    assert line.find("{*}Coords").get("points") == "10,20 390,20 390,50 10,50"
    assert line.find("{*}Baseline").get("points") == "10,42 390,42"
    assert line.find("{*}TextEquiv").attrib == {"conf": "0.5"}
    assert root.xpath("//@regionRef") == root.xpath("//*[local-name() = 'TextRegion']/@id")
    assert [element.text for element in root.find("{*}Metadata")] == ["Scribe", *["2026-03-01T22:30:05Z"] * 2]


@pytest.mark.parametrize(
    ("baseline", "said"),
    [
        (((10, 42), (390, 42)), "baseline 0 -8"),
        (((10, 42), (200, 60), (390, 61)), "baseline 0.05 -8"),
        (((110, 40), (310, 30)), "baseline -0.05 -5"),
        (((390, 42), (10, 42)), "baseline 0 -8"),
        (((10, 42), (10, 20)), "baseline 0 -8"),
    ],
)
def test_what_hocr_says_of_a_baseline(baseline: tuple[tuple[int, int], ...], said: str) -> None:
    """R163: the slope, and how far from the box's lower left corner it begins, upwards negative."""
    shape = LineShape(baseline, line_shape(20).polygon)
    assert f"; {said}; poly 10 20 390 20 390 50 10 50" in render(IMAGE, page_of(IMAGE, [shape], ["text"]))["hocr"].decode()


def test_what_hocr_says_of_the_page() -> None:
    """R163: the file, its page counted from zero; a quote in the name does not end it."""
    image = replace(IMAGE, frame=3, label='a "b" <c>.tif (3)')
    root = etree.fromstring(render(image, page_of(image, [line_shape(20)], ["كتب"]))["hocr"])
    page, line = (root.find(f".//*[@class='{kind}']") for kind in ("ocr_page", "ocr_line"))
    assert page.get("title") == "image \"a 'b' <c>.tif\"; bbox 0 0 400 300; ppageno 2"
    assert line.get("dir") == "rtl"
    assert line[0].get("title").endswith("; x_wconf 50")


def test_text_is_that_of_the_page() -> None:
    """R163: the lines of the text export are those that search and metrics know."""
    page = page_of(IMAGE, [line_shape(20 + 40 * row) for row in range(3)], ["b first", "", "a second"])
    assert render(IMAGE, page)["txt"].decode() == plain_text(page.payload) == "b first\na second\n"


# Text of any kind, and much of what is rare in it.
any_text = st.text(
    st.one_of(st.characters(exclude_categories=["Cs"]), st.sampled_from("אبי\u0301\u200f𐌰\x00\x0b\x1f \u00a0\u2028\ufffe&<>\"';]"))
)


@st.composite
def any_shape(draw: st.DrawFn) -> LineShape:
    """A line anywhere in the image, its baseline and polygon of any form."""
    points = st.tuples(st.integers(0, IMAGE.width), st.integers(0, IMAGE.height))
    left, top = draw(st.integers(0, IMAGE.width - 1)), draw(st.integers(0, IMAGE.height - 1))
    inside = st.tuples(st.integers(left, IMAGE.width), st.integers(top, IMAGE.height))
    corners = [(left, top), (draw(st.integers(left + 1, IMAGE.width)), draw(st.integers(top + 1, IMAGE.height)))]
    polygon = corners + draw(st.lists(inside, min_size=1, max_size=4))
    return LineShape(tuple(draw(st.lists(points, min_size=2, max_size=4))), tuple(polygon))


@settings(max_examples=150)
@given(lines=st.lists(st.tuples(any_shape(), any_text), max_size=4))
def test_anything(lines: list[tuple[LineShape, str]], tmp_path: Path) -> None:
    """R165: whatever the lines say and wherever they lie, every format is valid and gives them back."""
    page = page_of(IMAGE, [shape for shape, _ in lines], [text for _, text in lines])
    check_exports(IMAGE, page, tmp_path)
    assert [line.text for line in read_document(IMAGE, page).lines] == [as_exported(text) for _, text in lines]


def test_equal_bytes_in_every_process() -> None:
    """R92: one revision is exported to the same bytes again, in another process with another order of its hashes too."""
    printed = (
        "import hashlib, tests.exporting as e; print([hashlib.sha256(data).hexdigest() for data in e.sample_exports().values()])"
    )
    here = f"{[hashlib.sha256(data).hexdigest() for data in sample_exports().values()]}\n"
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "TZ": "Asia/Kolkata", "LC_ALL": "C"}
        done = subprocess.run([sys.executable, "-c", printed], cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.stdout == here, done.stderr


def test_each_format_is_written_alone() -> None:
    """R163: only what was asked for, and just as with the others."""
    page = page_of(IMAGE, [line_shape(20)], ["text"])
    everything = render(IMAGE, page)
    assert list(everything) == list(FORMATS) == ["alto", "page", "hocr", "txt", "json"]
    for name in FORMATS:
        assert render(IMAGE, page, [name]) == {name: everything[name]}
    with pytest.raises(ScribeError, match="'docx'; there are: alto, page, hocr, txt, json"):
        check_formats(["alto", "docx"])


def test_too_large_an_export_is_refused() -> None:
    """R163: over 32 MiB, in one sentence that names page and format."""
    page = page_of(IMAGE, [line_shape(20)], ["&" * 4_000_000])
    with pytest.raises(ScribeError, match=r"the page export of box/scan 1\.png has more than 32 MiB") as caught:
        render(IMAGE, page, ["txt", "page"])
    assert caught.value.category is Category.TOO_LARGE
