"""A page as hOCR 1.2, in XHTML that a browser shows too."""

from collections.abc import Iterable

from lxml import etree

from scribe_pipeline.engines import Point
from scribe_pipeline.exports.document import Box, Document, TextLine
from scribe_pipeline.exports.xml import add, new_root, number, to_bytes

_NAMESPACE = "http://www.w3.org/1999/xhtml"
_DOCTYPE = (
    '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">\n'
)
_CAPABILITIES = "ocr_page ocr_carea ocr_par ocr_line ocrx_word ocrp_dir ocrp_poly ocrp_wconf"


def write_hocr(document: Document) -> bytes:
    """Return the document as hOCR. Each block is an area with one paragraph; a line without words is empty."""
    root = new_root("html", _NAMESPACE)
    head = add(root, "head")
    add(head, "title", text=document.file)
    add(head, "meta", {"http-equiv": "Content-Type", "content": "text/html; charset=utf-8"})
    for name, content in (("ocr-system", "Scribe"), ("ocr-capabilities", _CAPABILITIES), ("ocr-number-of-pages", "1")):
        add(head, "meta", {"name": name, "content": content})
    # the quotes end the name, and there is no way to escape one
    image = f'image "{document.file.replace(chr(34), chr(39))}"'
    whole = (0, 0, document.width, document.height)
    page = _add(add(root, "body"), "div", "ocr_page", "page", image, _bbox(whole), f"ppageno {document.frame - 1}")
    for block in document.blocks:
        area = _add(page, "div", "ocr_carea", block.id, _bbox(block.box))
        paragraph = _add(area, "p", "ocr_par", f"{block.id}-par", _bbox(block.box))
        for line in block.lines:
            _add_line(paragraph, line)
    if not document.blocks:
        page.text = ""  # closes by a tag of its own, as a line without words below
    return to_bytes(root, _DOCTYPE)


def _add_line(paragraph: etree._Element, line: TextLine) -> None:
    outline = f"poly {_coordinates(line.polygon)}"
    text_line = _add(paragraph, "span", "ocr_line", line.id, _bbox(line.box), f"baseline {_baseline(line)}", outline)
    # empty text keeps the words together, and an element without any closes by a tag of its own: HTML takes <span/> for one that
    # stays open
    text_line.text = ""
    if line.right_to_left:
        text_line.set("dir", "rtl")
    for position, word in enumerate(line.words, start=1):
        confidence = () if word.confidence is None else (f"x_wconf {round(100 * word.confidence)}",)
        element = _add(text_line, "span", "ocrx_word", word.id, _bbox(word.box), *confidence)
        element.text = word.text
        element.tail = " " if position < len(line.words) else None


def _add(parent: etree._Element, tag: str, kind: str, name: str, *properties: str) -> etree._Element:
    return add(parent, tag, {"class": kind, "id": name, "title": "; ".join(properties)})


def _bbox(box: Box) -> str:
    x, y, width, height = box
    return f"bbox {x} {y} {x + width} {y + height}"


def _coordinates(pairs: Iterable[Point]) -> str:
    return " ".join(f"{x} {y}" for x, y in pairs)


def _baseline(line: TextLine) -> str:
    """Return slope and offset of the straight line between the baseline's ends, seen from the box's lower left corner."""
    (x0, y0), (x1, y1) = line.baseline[0], line.baseline[-1]
    left, bottom = line.box[0], line.box[1] + line.box[3]
    slope = (y1 - y0) / (x1 - x0) if x1 != x0 else 0.0
    return f"{number(slope, 5)} {number(y0 + slope * (left - x0) - bottom, 2)}"
