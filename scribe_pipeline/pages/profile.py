"""The canonical page: a IIIF Presentation 3 AnnotationPage of lines, built, checked and edited. No database here.

The form follows the IIIF Presentation API 3.0 and the text-granularity extension; geometry is whole pixels of the upright image.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from scribe_pipeline.database import dump_json
from scribe_pipeline.engines import LineShape, LineText
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.pages.images import Image

TEXT_GRANULARITY_CONTEXT = "http://iiif.io/api/extension/text-granularity/context.json"
PRESENTATION_CONTEXT = "http://iiif.io/api/presentation/3/context.json"
MEDIA_FRAGMENTS = "http://www.w3.org/TR/media-frags/"
GRANULARITIES = ("page", "block", "paragraph", "line", "word", "glyph")
_MAX_ID_BYTES = 512
_XYWH = re.compile(r"xywh=(?:pixel:)?(\d+),(\d+),(\d+),(\d+)")
_SVG_POINTS = re.compile(r"<(polygon|polyline) points=[\"']([^\"']*)[\"']")


@dataclass(frozen=True)
class PageLine:
    """A line annotation as the engines and exports need it."""

    annotation_id: str
    shape: LineShape
    text: str
    confidence: float | None


def build_page(image: Image, shapes: Sequence[LineShape]) -> str:
    """Return the payload of a page with these lines, in this order, and no text yet."""
    return dump_json(
        {
            "@context": [TEXT_GRANULARITY_CONTEXT, PRESENTATION_CONTEXT],
            "id": image.page_id,
            "type": "AnnotationPage",
            "items": [_line_annotation(image, position, shape) for position, shape in enumerate(shapes)],
        }
    )


def read_lines(payload: str) -> list[PageLine]:
    """Return the page's lines in canonical order. A line without polygon or baseline gets its box and the box's lower edge."""
    return [_page_line(item) for item in json.loads(payload)["items"] if item.get("textGranularity") == "line"]


def fill_lines(payload: str, texts: Mapping[str, LineText]) -> str:
    """Return the payload with the bodies of the lines named by id replaced; everything else keeps its bytes."""
    page = json.loads(payload)
    for item in page["items"]:
        if text := texts.get(item["id"]):
            item["body"] = _body(text.value) | {"confidence": round(text.confidence, 4)}
    return dump_json(page)


def index_rows(payload: str) -> list[dict[str, Any]]:
    """Return what the derived index holds of a page: id, granularity, position and text of each annotation."""
    return [
        {
            "annotation_id": item["id"],
            "granularity": item["textGranularity"],
            "position": position,
            # text columns cannot hold NUL
            "text": item["body"].get("value", "").replace("\x00", ""),
        }
        for position, item in enumerate(json.loads(payload)["items"])
    ]


def plain_text(payload: str) -> str:
    """Return the text of the page's lines in canonical order, a line each; lines without text are left out."""
    return "".join(f"{line.text}\n" for line in read_lines(payload) if line.text)


def check_page(payload: str, image: Image) -> None:
    """Check a payload against the page profile. Raises ScribeError (invalid_argument) naming the first annotation at fault."""
    try:
        page = json.loads(payload)
    except ValueError:
        raise _invalid("it is not JSON") from None
    if not isinstance(page, dict) or page.get("type") != "AnnotationPage" or not isinstance(page.get("items"), list):
        raise _invalid("it is no AnnotationPage with items")
    contexts = page.get("@context")
    if not isinstance(contexts, list) or contexts[-1:] != [PRESENTATION_CONTEXT] or contexts.count(PRESENTATION_CONTEXT) != 1:
        raise _invalid("its @context must be a list that ends with the Presentation 3 context")
    if any(key.startswith("@") for key in page if key != "@context"):
        raise _invalid("no key but @context may begin with @")
    if page.get("id") != image.page_id:
        raise _invalid("its id is not the page's")
    seen: set[str] = set()
    for position, item in enumerate(page["items"]):
        problem = _problem(item, image, seen)
        if problem:
            raise _invalid(f"annotation {position + 1}: {problem}")


def _problem(item: Any, image: Image, seen: set[str]) -> str | None:
    if not isinstance(item, dict) or item.get("type") != "Annotation" or item.get("motivation") != "supplementing":
        return "it is no Annotation that supplements"
    annotation_id = item.get("id")
    if not isinstance(annotation_id, str) or urlsplit(annotation_id).scheme not in ("http", "https"):
        return "its id is no absolute HTTP address"
    if len(annotation_id.encode()) > _MAX_ID_BYTES or annotation_id in seen:
        return "its id is too long or stands twice"
    seen.add(annotation_id)
    if item.get("textGranularity") not in GRANULARITIES:
        return "its textGranularity is unknown"
    body = item.get("body")
    if not isinstance(body, dict) or body.get("type") != "TextualBody" or not isinstance(body.get("value"), str):
        return "its body is no TextualBody with a value"
    boxes = _XYWH.findall(json.dumps(item.get("target")))
    if len(boxes) != 1 or _source(item["target"]) != image.canvas_uri:
        return "it must target the page's canvas once, with one xywh in whole pixels"
    x, y, width, height = map(int, boxes[0])
    if width < 1 or height < 1 or x + width > image.width or y + height > image.height:
        return "its box is empty or reaches over the image"
    return None


def _source(target: Any) -> Any:
    if isinstance(target, str):
        return target.partition("#")[0]
    source = target.get("source")
    return source.get("id") if isinstance(source, dict) else source


def _invalid(reason: str) -> ScribeError:
    return ScribeError(Category.INVALID_ARGUMENT, f"the page cannot be taken: {reason}")


def _line_annotation(image: Image, position: int, shape: LineShape) -> dict[str, Any]:
    digest = hashlib.sha256(f"{image.page_id} {position} {shape}".encode()).hexdigest()
    polygon, baseline = (" ".join(f"{x},{y}" for x, y in points) for points in (shape.polygon, shape.baseline))
    svg = f'<svg xmlns="http://www.w3.org/2000/svg"><polygon points="{polygon}"/><polyline points="{baseline}"/></svg>'
    return {
        "id": f"{image.page_id}/items/{digest[:32]}",
        "type": "Annotation",
        "motivation": "supplementing",
        "textGranularity": "line",
        "body": _body(""),
        "target": {
            "type": "SpecificResource",
            "source": image.canvas_uri,
            "selector": [
                {
                    "type": "FragmentSelector",
                    "conformsTo": MEDIA_FRAGMENTS,
                    "value": "xywh={},{},{},{}".format(*shape.box),
                },
                {"type": "SvgSelector", "value": svg},
            ],
        },
    }


def _body(value: str) -> dict[str, Any]:
    return {"type": "TextualBody", "value": value, "format": "text/plain"}


def _page_line(item: Mapping[str, Any]) -> PageLine:
    target = json.dumps(item["target"])
    x, y, width, height = map(int, _XYWH.search(target).groups())  # type: ignore[union-attr]  # a checked page has one
    points = {
        name: tuple((int(px), int(py)) for px, py in (pair.split(",") for pair in found.split()))
        for name, found in _SVG_POINTS.findall(target.replace('\\"', '"'))
    }
    corners = ((x, y), (x + width, y), (x + width, y + height), (x, y + height))
    shape = LineShape(points.get("polyline", (corners[3], corners[2])), points.get("polygon", corners))
    return PageLine(item["id"], shape, item["body"]["value"], item["body"].get("confidence"))
