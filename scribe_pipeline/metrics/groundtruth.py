"""Ground truth from ALTO (v2 to v4) and PAGE (2010 to 2019) files: lines as experts drew and transcribed them.

Only what a measure needs is read: outline, baseline and text of each line. Writing these formats belongs to `exports`.
"""

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lxml import etree

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.metrics.evaluation import Line

Points = tuple[tuple[float, float], ...]

# ALTO gives lengths in a unit of paper without the scan's resolution; 300 dpi is what such files are made at.
_PIXELS_PER_UNIT = {"pixel": 1.0, "mm10": 300 / 254, "inch1200": 300 / 1200}


@dataclass(frozen=True)
class GroundTruthLine(Line):
    """A line with the (x, y) points of its baseline in image pixels, None where the file gives none."""

    baseline: Points | None = None


def read_ground_truth(path: Path) -> tuple[GroundTruthLine, ...]:
    """The text lines of an ALTO or PAGE file in document order; () if it has regions only.

    ALTO text is the line's strings joined by one space, a HYP appended to the last (SUBS_CONTENT, the whole word over two lines,
    is not what the line shows). PAGE text is the line's own first TextEquiv, never its words'. It is '' where there is none.

    Raises ScribeError: UNREADABLE if the file cannot be opened, DAMAGED if it is not XML or its lines' geometry makes no sense,
    UNSUPPORTED_TYPE if it is neither ALTO nor PAGE.
    """
    try:
        root = etree.fromstring(path.read_bytes(), etree.XMLParser(resolve_entities=False, no_network=True))
    except OSError:
        raise ScribeError(Category.UNREADABLE, f"{path.name} cannot be opened; check that it exists and may be read.") from None
    except etree.XMLSyntaxError:
        raise ScribeError(Category.DAMAGED, f"{path.name} is not well-formed XML; export it again.") from None
    read = _READERS.get(etree.QName(root).localname)
    # Neither format has a document type; one could only bring entities, which would leave holes in the text.
    if read is None or root.getroottree().docinfo.internalDTD is not None:
        raise ScribeError(Category.UNSUPPORTED_TYPE, f"{path.name} is neither ALTO nor PAGE XML; give one of the two.")
    try:
        return tuple(read(root))
    except ValueError:
        raise ScribeError(
            Category.DAMAGED, f"{path.name} has a text line that cannot be read (outline, baseline or unit); export it again."
        ) from None


def _alto_lines(root: etree._Element) -> Iterator[GroundTruthLine]:
    unit = (root.findtext("{*}Description/{*}MeasurementUnit") or "pixel").strip()
    if unit not in _PIXELS_PER_UNIT:
        raise ValueError(unit)
    scale = _PIXELS_PER_UNIT[unit]
    for line in root.iter("{*}TextLine"):
        outline = line.find("{*}Shape/{*}Polygon")
        points = _box(line) if outline is None else _points(outline.get("POINTS", ""), 3)
        strings = " ".join(string.get("CONTENT", "") for string in line.findall("{*}String"))
        hyphen = "".join(hyp.get("CONTENT", "") for hyp in line.findall("{*}HYP"))
        baseline = _alto_baseline(line.get("BASELINE", ""), points)
        yield GroundTruthLine(_scaled(points, scale), strings + hyphen, _scaled(baseline, scale) if baseline else None)


def _page_lines(root: etree._Element) -> Iterator[GroundTruthLine]:
    for line in root.iter("{*}TextLine"):
        baseline = line.find("{*}Baseline")
        # Several TextEquivs are alternatives; the lowest index is the one that counts.
        equiv = min(line.findall("{*}TextEquiv"), key=lambda equiv: int(equiv.get("index", "0")), default=None)
        yield GroundTruthLine(
            _page_points(line.find("{*}Coords"), 3),
            "" if equiv is None else equiv.findtext("{*}Unicode") or "",
            None if baseline is None else _page_points(baseline, 2),
        )


_READERS: dict[str, Callable[[etree._Element], Iterator[GroundTruthLine]]] = {"alto": _alto_lines, "PcGts": _page_lines}


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


def _scaled(points: Points, scale: float) -> Points:
    return tuple((x * scale, y * scale) for x, y in points)
