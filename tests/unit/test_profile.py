"""The canonical page: built, checked against its profile, filled without touching anything else, read back."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import iiif_prezi3
import pytest

from scribe_pipeline.database import dump_json
from scribe_pipeline.engines import LineShape, LineText
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.pages import Image, build_page, canvas_uri, check_page, fill_lines, plain_text, read_lines
from scribe_pipeline.pages.profile import GRANULARITIES, PRESENTATION_CONTEXT, TEXT_GRANULARITY_CONTEXT, index_rows
from tests.houses import PUBLIC_URL, line_shape

ID = UUID(int=7)
CANVAS = canvas_uri(PUBLIC_URL, ID)
IMAGE = Image(ID, ID, ID, 1, 1, "scan.png", "key", "0" * 64, 1, "image/png", 400, 300, CANVAS)
SLANTED = LineShape(((12, 160), (200, 150), (380, 155)), ((10, 130), (390, 120), (385, 170), (20, 175)))
SHAPES = (line_shape(20), line_shape(70), SLANTED)
PAGE = build_page(IMAGE, SHAPES)
Change = Callable[[dict[str, Any]], object]


def changed(change: Change) -> str:
    page = json.loads(PAGE)
    change(page)
    return dump_json(page)


def top(**values: Any) -> Change:
    return lambda page: page.update(values)


def context(*values: Any) -> Change:
    return lambda page: page.update({"@context": list(values)})


def item(**values: Any) -> Change:
    return lambda page: page["items"][1].update(values)


def body(value: Any) -> Change:
    return lambda page: page["items"][1].update(body=value)


def xywh(value: str) -> Change:
    return lambda page: page["items"][1]["target"]["selector"][0].update(value=f"xywh={value}")


def texts(*values: str, confidence: float = 0.5) -> dict[str, LineText]:
    return {line.annotation_id: LineText(value, confidence) for line, value in zip(read_lines(PAGE), values, strict=False)}


@pytest.mark.parametrize("shapes", [(), SHAPES, (line_shape(20), line_shape(20))], ids=["no lines", "three", "two alike"])
def test_what_is_built_is_a_valid_page(shapes: tuple[LineShape, ...]) -> None:
    """R90: the page passes the profile and is a IIIF AnnotationPage; R88: each line has its rectangle inside the image."""
    payload = build_page(IMAGE, shapes)
    check_page(payload, IMAGE)
    page = iiif_prezi3.AnnotationPage.model_validate_json(payload)
    assert str(page.id) == f"{CANVAS}/annotations"
    assert [entry.target.selector[0].value for entry in page.items or ()] == ["xywh={},{},{},{}".format(*s.box) for s in shapes]
    assert json.loads(payload)["@context"] == [TEXT_GRANULARITY_CONTEXT, PRESENTATION_CONTEXT]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(top(type="Annotation"), id="type of the page"),
        pytest.param(lambda page: page.pop("items"), id="no items"),
        pytest.param(top(items={}), id="items are no list"),
        pytest.param(lambda page: page.update({"@context": PRESENTATION_CONTEXT}), id="context is no list"),
        pytest.param(context(TEXT_GRANULARITY_CONTEXT), id="without presentation context"),
        pytest.param(context(PRESENTATION_CONTEXT, TEXT_GRANULARITY_CONTEXT), id="presentation context is not last"),
        pytest.param(context(PRESENTATION_CONTEXT, PRESENTATION_CONTEXT), id="presentation context twice"),
        pytest.param(context(PRESENTATION_CONTEXT), id="without granularity context"),
        pytest.param(lambda page: page.update({"@id": "x"}), id="another key with @"),
        pytest.param(lambda page: page["items"][1].update({"@context": "x"}), id="context below the top"),
        pytest.param(top(id=CANVAS), id="id of another resource"),
        pytest.param(lambda page: page["items"].append("text"), id="annotation is no object"),
        pytest.param(item(type="Page"), id="type of an annotation"),
        pytest.param(item(motivation="painting"), id="motivation"),
        pytest.param(item(id=None), id="no annotation id"),
        pytest.param(item(id="items/1"), id="relative annotation id"),
        pytest.param(item(id="urn:x:1"), id="annotation id is no HTTP address"),
        pytest.param(item(id="http:1"), id="annotation id without a host"),
        pytest.param(item(id="http://[1"), id="annotation id that cannot be parsed"),
        pytest.param(item(id="http://x/" + "y" * 504), id="annotation id too long"),
        pytest.param(item(id="http://x/" + "é" * 252), id="annotation id too long in bytes"),
        pytest.param(lambda page: page["items"].append(page["items"][0]), id="annotation id twice"),
        pytest.param(item(textGranularity="sentence"), id="granularity"),
        pytest.param(lambda page: page["items"][1].pop("textGranularity"), id="no granularity"),
        pytest.param(lambda page: page["items"][1].pop("body"), id="no body"),
        pytest.param(body([{"type": "TextualBody", "value": "x"}]), id="body is no object"),
        pytest.param(body({"type": "Text", "value": "x"}), id="type of the body"),
        pytest.param(body({"type": "TextualBody"}), id="body without value"),
        pytest.param(body({"type": "TextualBody", "value": 1}), id="value is no string"),
        pytest.param(lambda page: page["items"][1].pop("target"), id="no target"),
        pytest.param(item(target=CANVAS), id="target without xywh"),
        pytest.param(item(target=f"{CANVAS}2#xywh=1,1,2,2"), id="another canvas"),
        pytest.param(item(target=[f"{CANVAS}#xywh=1,1,2,2"]), id="target is a list"),
        pytest.param(lambda page: page["items"][1]["target"].update(source=f"{CANVAS}#xywh=1,1,2,2"), id="xywh in the source too"),
        pytest.param(lambda page: page["items"][1]["target"]["selector"].append({"value": "xywh=1,1,2,2"}), id="two xywh"),
        pytest.param(xywh("percent:1,1,2,2"), id="percent"),
        pytest.param(xywh("-1,1,2,2"), id="negative"),
        pytest.param(xywh("1.5,1,2,2"), id="fraction"),
        pytest.param(xywh("1,1,2,2.5"), id="fraction at the end"),
        pytest.param(xywh("1,1,2,2,3"), id="five numbers"),
        pytest.param(xywh("1,1,2," + "9" * 5000), id="too many digits"),
        pytest.param(xywh("1,1,0,2"), id="no width"),
        pytest.param(xywh("1,1,2,0"), id="no height"),
        pytest.param(xywh("1,1,400,2"), id="over the right side"),
        pytest.param(xywh("1,1,2,300"), id="over the bottom"),
    ],
)
def test_what_breaks_the_profile_is_refused(change: Change) -> None:
    """R90: each rule of the profile refuses the page that breaks it, in one line."""
    with pytest.raises(ScribeError, match=r"^the page cannot be taken: .") as refused:
        check_page(changed(change), IMAGE)
    assert refused.value.category is Category.INVALID_ARGUMENT and "\n" not in refused.value.message


@pytest.mark.parametrize(
    "payload",
    ["", "{", "null", "[]", '"AnnotationPage"', pytest.param(PAGE[:-1] + ',"x":NaN}', id="NaN")],
)
def test_what_is_no_json_object_is_refused(payload: str) -> None:
    """R90: so is what is no page at all."""
    with pytest.raises(ScribeError, match=r"^the page cannot be taken: .") as refused:
        check_page(payload, IMAGE)
    assert refused.value.category is Category.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(context("http://x/more.json", TEXT_GRANULARITY_CONTEXT, PRESENTATION_CONTEXT), id="more contexts"),
        pytest.param(item(id="http://x/" + "y" * 503), id="longest id"),
        pytest.param(item(target=f"{CANVAS}#xywh=1,1,2,2"), id="target as a string"),
        pytest.param(lambda p: p["items"][1]["target"].update(source={"id": CANVAS, "type": "Canvas"}), id="canvas as an object"),
        pytest.param(xywh("pixel:1,1,2,2"), id="pixels by name"),
        pytest.param(xywh("0,0,400,300"), id="the whole image"),
        pytest.param(item(target=CANVAS, textGranularity="page"), id="a page without xywh"),
        pytest.param(top(seeAlso=[{"id": "x", "@type": "y"}], unknown={"a": [1, None]}), id="unknown properties"),
        *(pytest.param(item(textGranularity=granularity), id=granularity) for granularity in GRANULARITIES),
    ],
)
def test_what_keeps_the_profile_is_taken(change: Change) -> None:
    """R90: the profile refuses nothing else."""
    check_page(changed(change), IMAGE)


ODD = {"é\u2028": [1.0, 1e-07, -0.0, 10**30, True, None, {}], "": '\x7f\x1f"\\/', "z": {"b": 1, "a": 2}}


@pytest.mark.parametrize("position", [0, 1, 2])
def test_filling_a_line_keeps_every_other_byte(position: int) -> None:
    """R90: the filled page differs in one body; unknown properties, odd values and the order of keys and lines stay."""
    payload = changed(lambda page: (page.update(ODD), [entry.update(ODD) for entry in page["items"]]))
    line = read_lines(payload)[position]
    filled = fill_lines(payload, {line.annotation_id: LineText("new", 0.123456), "http://x/none": LineText("no", 1)})
    old = dump_json(json.loads(payload)["items"][position])
    before, after = payload.split(old)
    assert filled.startswith(before) and filled.endswith(after)
    new_body = '"body":{"type":"TextualBody","value":"new","format":"text/plain","confidence":0.1235}'
    old_body = '"body":{"type":"TextualBody","value":"","format":"text/plain"}'
    assert filled == before + old.replace(old_body, new_body) + after
    assert fill_lines(payload, {}) == payload


@pytest.mark.parametrize(
    "text",
    ["Dear Sir", "بِسْمِ \u200fكتب", "नमस्\u200dते", "ꝑ e\u0301", "𐌰𐌱 \U0001f600", "天地玄黄", '<b>&amp;"\\" \'', "a\u2028b"],
)
def test_every_script_survives_the_way_through_a_page(text: str) -> None:
    """R165: non-Latin, right-to-left, combining and astral text comes back as it was given."""
    filled = fill_lines(PAGE, texts(text, "", text[::-1]))
    check_page(filled, IMAGE)
    page = iiif_prezi3.AnnotationPage.model_validate_json(filled)
    assert (page.items or [])[0].body.value == text
    assert text in filled or json.dumps(text, ensure_ascii=False) in filled
    assert [line.text for line in read_lines(filled)] == [text, "", text[::-1]]
    assert plain_text(filled) == f"{text}\n{text[::-1]}\n"
    assert [row["text"] for row in index_rows(filled)] == [text, "", text[::-1]]


def test_lines_come_back_with_their_geometry_and_confidence() -> None:
    """R164: the stored page alone gives the lines to read again, in their order."""
    lines = read_lines(fill_lines(PAGE, texts("one", confidence=0.25)))
    assert tuple(line.shape for line in lines) == SHAPES
    assert [line.confidence for line in lines] == [0.25, None, None]
    assert len({line.annotation_id for line in lines}) == 3


BOX = LineShape(((10, 100), (390, 100)), ((10, 70), (390, 70), (390, 100), (10, 100)))


@pytest.mark.parametrize(
    ("svg", "expected"),
    [
        pytest.param("<svg/>", BOX, id="no shape"),
        pytest.param("<svg><path d='M1,1 L2,2 Z'/></svg>", BOX, id="a path"),
        pytest.param("<polygon points='10,70 390,70 9,99'/>", LineShape(BOX.baseline, ((10, 70), (390, 70), (9, 99))), id="'"),
        pytest.param('<svg><polygon points="10.5,70 390,70.5 10,99"/></svg>', None, id="fractions"),
        pytest.param('<svg><polygon points="10 70 390 70 10 99"/></svg>', None, id="only spaces"),
    ],
)
def test_a_foreign_shape_is_read_or_gives_way_to_the_box(svg: str, expected: LineShape | None) -> None:
    """R162: a page that another program saved is still the input to reading."""
    payload = changed(lambda page: page["items"][1]["target"]["selector"][1].update(value=svg))
    check_page(payload, IMAGE)
    shape = read_lines(payload)[1].shape
    assert expected is None or shape == expected


def test_the_index_has_all_annotations_the_text_only_lines() -> None:
    payload = changed(lambda page: page["items"][0].update(textGranularity="word", body={"type": "TextualBody", "value": "a\0b"}))
    filled = fill_lines(payload, {read_lines(payload)[0].annotation_id: LineText("second", 1.0)})
    rows = [(row["position"], row["granularity"], row["text"]) for row in index_rows(filled)]
    assert rows == [(0, "word", "ab"), (1, "line", "second"), (2, "line", "")]
    assert plain_text(filled) == "second\n"
