"""A page as ALTO 4.4: blocks, lines with shape and baseline, and a String for each word."""

from lxml import etree

from scribe_pipeline.exports.document import Box, Document, TextLine
from scribe_pipeline.exports.xml import add, new_root, number, points, to_bytes

_NAMESPACE = "http://www.loc.gov/standards/alto/ns-v4#"
_SCHEMA = "http://www.loc.gov/standards/alto/v4/alto-4-4.xsd"


def write_alto(document: Document) -> bytes:
    """Return the document as ALTO. A line without words has one empty String, as the schema wants one."""
    root = new_root("alto", _NAMESPACE, {"SCHEMAVERSION": "4.4"}, _SCHEMA)
    description = add(root, "Description")
    add(description, "MeasurementUnit", text="pixel")
    add(add(description, "sourceImageInformation"), "fileName", text=document.file)
    processing = add(description, "Processing", {"ID": "processing"})
    add(processing, "processingDateTime", text=document.written_at)
    add(add(processing, "processingSoftware"), "softwareName", text="Scribe")
    size = {"WIDTH": str(document.width), "HEIGHT": str(document.height)}
    page = add(add(root, "Layout"), "Page", {"ID": "page", "PHYSICAL_IMG_NR": str(document.frame)} | size)
    space = add(page, "PrintSpace", _place((0, 0, document.width, document.height)))
    for block in document.blocks:
        text_block = add(space, "TextBlock", {"ID": block.id} | _place(block.box))
        for line in block.lines:
            _add_line(text_block, line)
    return to_bytes(root)


def _add_line(text_block: etree._Element, line: TextLine) -> None:
    attributes = {"ID": line.id} | _place(line.box) | {"BASELINE": points(line.baseline)}
    if line.right_to_left:
        attributes["BASEDIRECTION"] = "rtl"
    text_line = add(text_block, "TextLine", attributes)
    add(add(text_line, "Shape"), "Polygon", {"POINTS": points(line.polygon)})
    if not line.words:
        add(text_line, "String", {"ID": f"{line.id}-0"} | _place(line.box) | {"CONTENT": ""})
    for position, word in enumerate(line.words):
        if position:
            add(text_line, "SP")
        confidence = {} if word.confidence is None else {"WC": number(word.confidence)}
        add(text_line, "String", {"ID": word.id} | _place(word.box) | {"CONTENT": word.text} | confidence)


def _place(box: Box) -> dict[str, str]:
    return dict(zip(("HPOS", "VPOS", "WIDTH", "HEIGHT"), map(str, box), strict=True))
