"""Pages to export: made of lines with texts, or of the ground truth of a real page; and the exports as Kraken reads them."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

from lxml import etree
from PIL import Image as Picture

from scribe_pipeline.database import dump_json
from scribe_pipeline.engines import LineShape, LineText
from scribe_pipeline.exports import render
from scribe_pipeline.metrics import read_ground_truth
from scribe_pipeline.pages import Image, PageRevision, build_page, canvas_uri, check_page, fill_lines, read_lines
from tests.conftest import SHARED
from tests.houses import PUBLIC_URL, line_shape

ID = UUID(int=7)
IMAGE = Image(
    id=ID, workspace_id=ID, item_id=ID, sequence=1, frame=1, label="box/scan 1.png", object_key="key", sha256="0" * 64,
    storage_bytes=1, media_type="image/png", width=400, height=300, canvas_uri=canvas_uri(PUBLIC_URL, ID),
)  # fmt: skip
WRITTEN_AT = datetime(2026, 3, 1, 22, 30, 5, 123456, tzinfo=UTC)
# Right-to-left, astral, composed and decomposed, ligatures and private use as in medieval editions, what XML must escape.
TEXTS = (
    "plain words", "<a> & \"b\" 'c' ]]>", "كتب الكاتب في الكتاب", "שלום עולם 1905", "𐌰𐌱 𝔄𝔟 🜁", "e\u0301te\u0301 été Å\u030a",
    "\uf1ac\ue665ꝑ ꝓ ﬅ", "1\u00a0000 a\u202fb", " two  spaces\tand a tab ", "form\x0cfeed \x01\x02 nul\x00s \uffff\ufffe", "\u200f",
)  # fmt: skip


def revision(payload: str, number: int = 2) -> PageRevision:
    """A committed revision with this payload, which must be one that could be."""
    return PageRevision(number, payload, WRITTEN_AT)


def page_of(image: Image, shapes: Sequence[LineShape], texts: Sequence[str], confidence: float = 0.5) -> PageRevision:
    """A page of lines with these texts; one whose text is empty was not read."""
    payload = build_page(image, shapes)
    lines = read_lines(payload)
    filled = {line.annotation_id: LineText(text, confidence) for line, text in zip(lines, texts, strict=True) if text}
    payload = fill_lines(payload, filled)
    check_page(payload, image)
    return revision(payload)


def with_items(page: PageRevision, *items: tuple[str, str, str]) -> PageRevision:
    """The page with further annotations at its end, each a granularity, an xywh and a text."""
    document = json.loads(page.payload)
    for number, (granularity, xywh, text) in enumerate(items):
        document["items"].append(
            {
                "id": f"https://example.org/{granularity}/{number}",
                "type": "Annotation",
                "motivation": "supplementing",
                "textGranularity": granularity,
                "body": {"type": "TextualBody", "value": text},
                "target": f"{IMAGE.canvas_uri}#xywh={xywh}",
            }
        )
    payload = dump_json(document)
    check_page(payload, IMAGE)
    return replace(page, payload=payload)


def ground_truths() -> list[Path]:
    """The real pages that come with ground truth in ALTO or PAGE."""
    return sorted((SHARED / "pages").glob("*/*.xml"))


def real_page(ground_truth: Path) -> tuple[Image, PageRevision]:
    """The page that its ground truth describes, with whole pixels inside the image."""
    (scan,) = (path for path in ground_truth.parent.glob(f"{ground_truth.stem}.*") if path.suffix not in (".xml", ".txt"))
    with Picture.open(scan) as picture:
        image = replace(IMAGE, label=scan.name, width=picture.width, height=picture.height)

    def inside(points: Sequence[tuple[float, float]]) -> tuple[tuple[int, int], ...]:
        return tuple((min(max(round(x), 0), image.width - 1), min(max(round(y), 0), image.height - 1)) for x, y in points)

    lines = read_ground_truth(ground_truth)
    shapes = [LineShape(inside(line.baseline or line.polygon[:2]), inside(line.polygon)) for line in lines]
    return image, page_of(image, shapes, [line.text for line in lines])


def kraken_lines(data: bytes, folder: Path) -> list[Any]:
    """The lines of an ALTO or PAGE export in Kraken's eyes, in reading order."""
    from kraken.lib.xml import XMLPage

    file = folder / "export.xml"
    file.write_bytes(data)
    return list(XMLPage(file).get_sorted_lines())


def without_repetition(points: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Points as Kraken reads them: one that stands twice in a row counts once."""
    return [point for point, _ in groupby(points)]


def schema(name: str) -> etree.XMLSchema:
    """A schema of ../shared, resolved without a network."""
    return etree.XMLSchema(etree.parse(SHARED / "schemas" / name, etree.XMLParser(no_network=True)))


def sample_exports() -> dict[str, bytes]:
    """The exports of a page with all kinds of text, the same in any process."""
    shapes = [line_shape(10 + 20 * row) for row in range(len(TEXTS))]
    return render(IMAGE, page_of(IMAGE, shapes, TEXTS))
