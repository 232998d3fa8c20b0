"""A page as PAGE XML of 2019-07-15: regions in reading order, lines with outline and baseline, words with boxes."""

from lxml import etree

from scribe_pipeline.exports.document import Document, TextLine, corners
from scribe_pipeline.exports.xml import add, new_root, number, points, to_bytes

_NAMESPACE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"


def write_page_xml(document: Document) -> bytes:
    """Return the document as PAGE XML. A line without words has no text at all."""
    root = new_root("PcGts", _NAMESPACE, schema=f"{_NAMESPACE}/pagecontent.xsd")
    metadata = add(root, "Metadata")
    add(metadata, "Creator", text="Scribe")
    add(metadata, "Created", text=document.written_at)
    add(metadata, "LastChange", text=document.written_at)
    size = {"imageWidth": str(document.width), "imageHeight": str(document.height)}
    page = add(root, "Page", {"imageFilename": document.file} | size)
    if document.blocks:
        order = add(add(page, "ReadingOrder"), "OrderedGroup", {"id": "reading-order"})
        for index, block in enumerate(document.blocks):
            add(order, "RegionRefIndexed", {"index": str(index), "regionRef": block.id})
    for block in document.blocks:
        region = add(page, "TextRegion", {"id": block.id})
        add(region, "Coords", {"points": points(corners(block.box))})
        for line in block.lines:
            _add_line(region, line)
    return to_bytes(root)


def _add_line(region: etree._Element, line: TextLine) -> None:
    direction = {"readingDirection": "right-to-left"} if line.right_to_left else {}
    text_line = add(region, "TextLine", {"id": line.id} | direction)
    add(text_line, "Coords", {"points": points(line.polygon)})
    add(text_line, "Baseline", {"points": points(line.baseline)})
    for word in line.words:
        element = add(text_line, "Word", {"id": word.id})
        add(element, "Coords", {"points": points(corners(word.box))})
        _add_text(element, word.text, word.confidence)
    if line.words:
        _add_text(text_line, line.text, line.confidence)


def _add_text(parent: etree._Element, text: str, confidence: float | None) -> None:
    attributes = {} if confidence is None else {"conf": number(confidence)}
    add(add(parent, "TextEquiv", attributes), "Unicode", text=text)
