"""The canonical page: a IIIF Presentation 3 AnnotationPage of lines, built, checked and edited. No database here.

The form follows the IIIF Presentation API 3.0 and the text-granularity extension; geometry is whole pixels of the upright image.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scribe_pipeline.database import dump_json
from scribe_pipeline.engines import LineShape, LineText
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.pages.images import Image

TEXT_GRANULARITY_CONTEXT = "http://iiif.io/api/extension/text-granularity/context.json"
PRESENTATION_CONTEXT = "http://iiif.io/api/presentation/3/context.json"
MEDIA_FRAGMENTS = "http://www.w3.org/TR/media-frags/"
GRANULARITIES = ("page", "block", "paragraph", "line", "word", "glyph")
_MAX_PAGE_BYTES, _MAX_ANNOTATIONS, _MAX_ID_BYTES = 8 * 1024**2, 10_000, 512
_HTTP_ADDRESS = re.compile(r"https?://[^\s/?#\[\]\x00-\x1f\ud800-\udfff]+[^\s\x00-\x1f\ud800-\udfff]*")
_XYWH = re.compile(r"xywh=(?:pixel:)?(\d{1,10}),(\d{1,10}),(\d{1,10}),(\d{1,10})")
_NUMBER = re.compile(r"[-+]?\d*\.?\d+(?:[eE][-+]?\d+)?")
_SVG_POINTS = re.compile(r"<(polygon|polyline) points=[\"']([^\"']*)[\"']")


@dataclass(frozen=True)
class PageAnnotation:
    """An annotation as the engines and exports need it. `box` is its target's x, y, width and height."""

    annotation_id: str
    granularity: str
    box: tuple[int, int, int, int]
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


def read_annotations(payload: str, *granularities: str) -> list[PageAnnotation]:
    """Return the page's annotations of these granularities (not `page`, which need not have a box) in canonical order.

    One without polygon or baseline gets its box and the box's lower edge.
    """
    return [_page_annotation(item) for item in json.loads(payload)["items"] if item.get("textGranularity") in granularities]


def read_lines(payload: str) -> list[PageAnnotation]:
    """Return the page's lines in canonical order."""
    return read_annotations(payload, "line")


def fill_lines(payload: str, texts: Mapping[str, LineText]) -> str:
    """Return the payload with the bodies of the lines named by id replaced; everything else keeps its bytes."""
    page = json.loads(payload)
    for item in page["items"]:
        if text := texts.get(item["id"]):
            item["body"]["value"] = text.value
            if text.confidence is not None:
                item["body"]["confidence"] = round(text.confidence, 4)
            else:
                item["body"].pop("confidence", None)  # it was another reading's
    return dump_json(page)


def normal_form(payload: str) -> str:
    """Return JSON text from outside in the form that is stored. Raises ScribeError (invalid_argument) for what is not JSON."""
    try:
        return dump_json(json.loads(payload))
    except json.JSONDecodeError as error:
        raise _invalid(f"it is not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from None
    except (ValueError, RecursionError):
        raise _invalid("it is not JSON that can be stored") from None


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
        size = len(payload.encode())
        page = json.loads(payload, parse_constant=_no_number)
    except (ValueError, RecursionError):
        raise _invalid("it is not JSON that can be stored") from None
    if not isinstance(page, dict) or page.get("type") != "AnnotationPage" or not isinstance(page.get("items"), list):
        raise _invalid("it is no AnnotationPage with items")
    if size > _MAX_PAGE_BYTES or len(page["items"]) > _MAX_ANNOTATIONS:
        raise _invalid("it is larger than 8 MiB or has more than 10,000 annotations")
    contexts = page.get("@context")
    if not isinstance(contexts, list) or TEXT_GRANULARITY_CONTEXT not in contexts or contexts[-1] != PRESENTATION_CONTEXT:
        raise _invalid("its @context must be a list with the text-granularity context that ends with the Presentation 3 context")
    if contexts.count(PRESENTATION_CONTEXT) != 1 or any(key.startswith("@") for key in page if key != "@context"):
        raise _invalid("the Presentation 3 context must stand once, and no key but @context may begin with @")
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
    if any(key.startswith("@") for key in item):
        return "it has a key that begins with @"
    annotation_id = item.get("id")
    if not isinstance(annotation_id, str) or not _HTTP_ADDRESS.fullmatch(annotation_id):
        return "its id is no absolute HTTP address"
    if len(annotation_id.encode()) > _MAX_ID_BYTES or annotation_id in seen:
        return "its id is too long or stands twice"
    seen.add(annotation_id)
    if item.get("textGranularity") not in GRANULARITIES:
        return "its textGranularity is unknown"
    body = item.get("body")
    if not isinstance(body, dict) or body.get("type") != "TextualBody" or not isinstance(body.get("value"), str):
        return "its body is no TextualBody with a value"
    if not _storable(body["value"]):
        return "its text holds half a character"
    confidence = body.get("confidence", 0)
    if isinstance(confidence, bool) or not isinstance(confidence, int | float) or not 0 <= confidence <= 1:
        return "its confidence is no number from 0 to 1"
    return _target_problem(item, image)


def _target_problem(item: dict[str, Any], image: Image) -> str | None:
    source, fragments = _target(item.get("target"))
    if source != image.canvas_uri:
        return "it must target the page's canvas"
    if not fragments and item["textGranularity"] == "page":
        return None
    box = _XYWH.fullmatch(fragments[0]) if len(fragments) == 1 else None
    if box is None:
        return "it must have one xywh in whole pixels"
    x, y, width, height = map(int, box.groups())
    if width < 1 or height < 1 or x + width > image.width or y + height > image.height:
        return "its box is empty or reaches over the image"
    return None


def _target(target: Any) -> tuple[Any, list[str]]:
    """Return the source of a target and the values of its fragment selectors."""
    if isinstance(target, str):
        canvas, separator, fragment = target.partition("#")
        return canvas, [fragment] if separator else []
    if not isinstance(target, dict):
        return None, []
    source = target.get("source")
    values = [
        str(selector.get("value"))
        for selector in _selectors(target)
        if selector.get("type") == "FragmentSelector" or str(selector.get("value")).startswith("xywh=")
    ]
    return source.get("id") if isinstance(source, dict) else source, values


def _selectors(target: Mapping[str, Any]) -> list[dict[str, Any]]:
    selector = target.get("selector", [])
    return [entry for entry in (selector if isinstance(selector, list) else [selector]) if isinstance(entry, dict)]


def _no_number(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _storable(text: str) -> bool:
    """Whether a text could be written as UTF-8, which lone halves of a surrogate pair cannot."""
    return not any("\ud800" <= char <= "\udfff" for char in text)


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


def _page_annotation(item: Mapping[str, Any]) -> PageAnnotation:
    target = item["target"]
    _, fragments = _target(target)
    x, y, width, height = map(int, _XYWH.fullmatch(fragments[0]).groups())  # type: ignore[union-attr]  # a checked one has one
    corners = ((x, y), (x + width, y), (x + width, y + height), (x, y + height))
    svg = "".join(
        str(selector.get("value"))
        for selector in ([] if isinstance(target, str) else _selectors(target))
        if selector.get("type") == "SvgSelector"
    )
    drawn = {name: _points(text) for name, text in _SVG_POINTS.findall(svg)}
    polygon, baseline = drawn.get("polygon", ()), drawn.get("polyline", ())
    shape = LineShape(
        baseline if len(baseline) >= 2 else (corners[3], corners[2]),
        polygon if len(polygon) >= 3 else corners,
    )
    body = item["body"]
    return PageAnnotation(item["id"], item["textGranularity"], (x, y, width, height), shape, body["value"], body.get("confidence"))


def _points(text: str) -> tuple[tuple[int, int], ...]:
    """Read SVG points, whole or not, with commas or spaces between."""
    written = [float(number) for number in _NUMBER.findall(text)]
    numbers = [round(number) for number in written if math.isfinite(number)]
    return tuple(zip(numbers[::2], numbers[1::2], strict=False))
