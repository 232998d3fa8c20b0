"""Ground truth from ALTO (v2 to v4) and PAGE (2010 to 2019) files: lines as experts drew and transcribed them.

Only what a measure needs is read: outline, baseline and text of each line. Writing these formats belongs to `exports`.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from lxml import etree

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.metrics.evaluation import Line

Points = tuple[tuple[float, float], ...]

# ALTO gives lengths in a unit of paper without the scan's resolution; 300 dpi is what such files are made at.
_PIXELS_PER_UNIT = {"pixel": 1.0, "mm10": 300 / 254, "inch1200": 300 / 1200}
# No page has a place so many pixels from its corner.
_FARTHEST = 200_000
_MAX_DISTORTION = 1.02  # of the page's sides against the image's; more than rounding makes is another page, or a turned one


@dataclass(frozen=True)
class GroundTruthLine(Line):
    """A line with the (x, y) points of its baseline in image pixels, None where the file gives none."""

    baseline: Points | None = None


def read_ground_truth(path: Path, size: tuple[int, int] | None = None) -> tuple[GroundTruthLine, ...]:
    """The text lines of an ALTO or PAGE file in reading order; () if it has regions only.

    The order is that of the document, or of PAGE's ReadingOrder if that names every region with lines. With `size`, the image's
    width and height in pixels, geometry is scaled from the page's size as the file gives it, in whatever unit, to the image's;
    without it, or if the file gives none, units of paper are taken at 300 dpi.

    ALTO text is the line's strings joined by one space, a HYP appended to the last (SUBS_CONTENT, the whole word over two lines,
    is not what the line shows). PAGE text is the line's own first TextEquiv, never its words'. It is '' where there is none.

    Raises ScribeError: UNREADABLE if the file cannot be opened, DAMAGED if it is not XML, its lines' geometry makes no sense or
    its page has another shape than the image, UNSUPPORTED_TYPE if it is neither ALTO nor PAGE.
    """
    try:
        root = etree.fromstring(path.read_bytes(), etree.XMLParser(resolve_entities=False, no_network=True))
    except OSError:
        raise ScribeError(Category.UNREADABLE, f"{path.name} cannot be opened; check that it exists and may be read.") from None
    except etree.XMLSyntaxError:
        raise ScribeError(Category.DAMAGED, f"{path.name} is not well-formed XML; export it again.") from None
    known = _FORMATS.get(etree.QName(root).localname)
    # Neither format has a document type; one could only bring entities, which would leave holes in the text.
    if known is None or root.getroottree().docinfo.internalDTD is not None:
        raise ScribeError(Category.UNSUPPORTED_TYPE, f"{path.name} is neither ALTO nor PAGE XML; give one of the two.")
    read, width, height = known
    try:
        lines = tuple(read(root))
        across, down = _scale(root, width, height, size)
        lines = tuple(
            replace(
                line,
                polygon=_scaled(line.polygon, across, down),
                baseline=None if line.baseline is None else _scaled(line.baseline, across, down),
            )
            for line in lines
        )
    except ValueError:
        problem = "a text line, unit or size that cannot be read"
        raise ScribeError(Category.DAMAGED, f"{path.name} has {problem}; export it again.") from None
    if size is not None and not 1 / _MAX_DISTORTION <= across / down <= _MAX_DISTORTION:
        problem = f"is the ground truth of a page of another shape than its image of {size[0]:,} x {size[1]:,} pixels"
        raise ScribeError(Category.DAMAGED, f"{path.name} {problem}; put it beside the image that it was made from.")
    return lines


def _scale(root: etree._Element, width: str, height: str, size: tuple[int, int] | None) -> tuple[float, float]:
    """Pixels for each of the file's units, across and down; `width` and `height` are the attributes with the page's size."""
    unit = (root.findtext("{*}Description/{*}MeasurementUnit") or "pixel").strip()
    if unit not in _PIXELS_PER_UNIT:
        raise ValueError(unit)
    page = root.find(".//{*}Page")
    if size is not None and page is not None:
        told = float(page.get(width, "0")), float(page.get(height, "0"))
        if all(0 < side < math.inf for side in told):
            return size[0] / told[0], size[1] / told[1]
    return _PIXELS_PER_UNIT[unit], _PIXELS_PER_UNIT[unit]


def _alto_lines(root: etree._Element) -> Iterator[GroundTruthLine]:
    for line in root.iter("{*}TextLine"):
        outline = line.find("{*}Shape/{*}Polygon")
        points = _box(line) if outline is None else _points(outline.get("POINTS", ""), 3)
        strings = " ".join(string.get("CONTENT", "") for string in line.findall("{*}String"))
        hyphen = "".join(hyp.get("CONTENT", "") for hyp in line.findall("{*}HYP"))
        baseline = _alto_baseline(line.get("BASELINE", ""), points)
        yield GroundTruthLine(points, strings + hyphen, baseline, box_only=outline is None)


def _page_lines(root: etree._Element) -> Iterator[GroundTruthLine]:
    for line in _in_reading_order(root):
        baseline = line.find("{*}Baseline")
        # Several TextEquivs are alternatives; the lowest index is the one that counts.
        equiv = min(line.findall("{*}TextEquiv"), key=lambda equiv: int(equiv.get("index", "0")), default=None)
        yield GroundTruthLine(
            _page_points(line.find("{*}Coords"), 3),
            "" if equiv is None else equiv.findtext("{*}Unicode") or "",
            None if baseline is None else _page_points(baseline, 2),
        )


# By the root element: the reader, and the attributes of Page that give its size.
_FORMATS: dict[str, tuple[Callable[[etree._Element], Iterator[GroundTruthLine]], str, str]] = {
    "alto": (_alto_lines, "WIDTH", "HEIGHT"),
    "PcGts": (_page_lines, "imageWidth", "imageHeight"),
}


def _in_reading_order(root: etree._Element) -> list[etree._Element]:
    lines = list(root.iter("{*}TextLine"))
    order = root.find(".//{*}ReadingOrder")
    places = {} if order is None else {region: place for place, region in enumerate(_regions(order))}
    place_of = {
        line: next((places[region] for parent in line.iterancestors() if (region := parent.get("id", "")) in places), -1)
        for line in lines
    }
    return lines if -1 in place_of.values() else sorted(lines, key=place_of.__getitem__)


def _regions(group: etree._Element) -> Iterator[str]:
    """The regions that a group of the reading order refers to, groups inside it included, by their index where they have one."""
    for member in sorted(group.iterchildren("{*}*"), key=lambda member: int(member.get("index", "0"))):
        if region := member.get("regionRef"):
            yield region
        yield from _regions(member)


def _page_points(element: etree._Element | None, at_least: int) -> Points:
    if element is None:
        raise ValueError("no Coords")
    children = " ".join(f"{point.get('x')},{point.get('y')}" for point in element.findall("{*}Point"))  # before 2013
    return _points(element.get("points", children), at_least)


def _alto_baseline(value: str, outline: Points) -> Points | None:
    if not value.strip():
        return None
    if re.fullmatch(r"\s*-?[\d.]+\s*", value):  # older versions: one height for the whole line
        xs = [x for x, _ in outline]
        return (min(xs), float(value)), (max(xs), float(value))
    return _points(value, 2)


def _box(line: etree._Element) -> Points:
    left, top, width, height = (float(line.get(name, "")) for name in ("HPOS", "VPOS", "WIDTH", "HEIGHT"))
    return (left, top), (left + width, top), (left + width, top + height), (left, top + height)


def _points(value: str, at_least: int) -> Points:
    """The points of "x,y x,y" or "x y x y"; both are written."""
    numbers = [float(number) for number in re.split(r"[\s,]+", value.strip())]
    if len(numbers) % 2 or len(numbers) < 2 * at_least or not all(map(math.isfinite, numbers)):
        raise ValueError(value)
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


def _scaled(points: Points, across: float, down: float) -> Points:
    scaled = tuple((x * across, y * down) for x, y in points)
    if not all(abs(number) <= _FARTHEST for point in scaled for number in point):  # nor is a NaN
        raise ValueError(points)
    return scaled
