"""The score of one page: which ground-truth lines were found, in which order, and how well they were read.

Pure functions over lines. Where the lines come from, and what is done with the score, does not belong here.
"""

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import jiwer
from shapely import Polygon, STRtree, make_valid
from shapely.geometry.base import BaseGeometry

MIN_IOU = 0.5  # of the polygons' areas, at or above which two lines are the same line

_QUOTES = str.maketrans("‘’‚‛“”„‟", "''''\"\"\"\"")  # noqa: RUF001 - the look-alikes are the point
_DASHES_OUTSIDE_PD = "\N{MINUS SIGN}\N{SOFT HYPHEN}"


@dataclass(frozen=True)
class Line:
    """One line of a page: its outline as (x, y) in image pixels, not closed, and its text ('' if it has none)."""

    polygon: tuple[tuple[float, float], ...]
    text: str


@dataclass(frozen=True)
class PageScore:
    """Counts of lines, and measures from 0 to 1 (`order_tau` from -1; `cer` may exceed 1, and is None if no line has text)."""

    gt_lines: int
    found_lines: int
    matched: int
    order_tau: float
    cer: float | None

    @property
    def recall(self) -> float:
        """The share of ground-truth lines that were found; 1.0 if there are none to find."""
        return self.matched / self.gt_lines if self.gt_lines else 1.0

    @property
    def precision(self) -> float:
        """The share of found lines that are ground-truth lines; 1.0 if none was found."""
        return self.matched / self.found_lines if self.found_lines else 1.0


def evaluate(found: Sequence[Line], truth: Sequence[Line]) -> PageScore:
    """Score the lines found, in reading order, against the ground truth in document order.

    A line matches at most one other, at a polygon IoU of `MIN_IOU` or more; an outline without area matches none. `order_tau` is
    Kendall's tau over the matched lines, 1.0 if there are fewer than two. `cer` is pooled over the matched lines: all edits by all
    reference characters after `normalise`; ground-truth lines without text are left out, for nobody has transcribed them.
    """
    pairs = _match(found, truth)
    found_order = [found_index for _, found_index in pairs]
    texts = [(normalise(truth[t].text), normalise(found[f].text)) for t, f in pairs]
    texts = [(reference, read) for reference, read in texts if reference]
    cer = jiwer.process_characters([reference for reference, _ in texts], [read for _, read in texts]).cer if texts else None
    return PageScore(len(truth), len(found), len(pairs), _kendall_tau(found_order), cer)


def normalise(text: str) -> str:
    """The text as it is compared.

    NFKC (so a long s is an s, a ligature its letters); curly and low quotation marks straight (guillemets stay: they are another
    mark); every dash (Unicode class Pd, minus sign, soft hyphen) a hyphen-minus; runs of white space one space, none at the ends.
    """
    # NFKC first: it turns compatibility forms (full-width quotes, small dashes) into the characters replaced afterwards.
    straight = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    dashed = "".join("-" if unicodedata.category(c) == "Pd" or c in _DASHES_OUTSIDE_PD else c for c in straight)
    return " ".join(dashed.split())


def _match(found: Sequence[Line], truth: Sequence[Line]) -> list[tuple[int, int]]:
    """Index pairs (truth, found), one to one, in ground-truth order."""
    found_shapes = [_shape(line) for line in found]
    tree = STRtree(found_shapes)
    candidates = []
    for t, line in enumerate(truth):
        shape = _shape(line)
        for f in tree.query(shape, predicate="intersects").tolist():
            shared = shape.intersection(found_shapes[f]).area
            iou = shared / (shape.area + found_shapes[f].area - shared)
            if iou >= MIN_IOU:
                candidates.append((-iou, t, f))
    # Greedy, best first, is enough: at this IoU a pair shares at least half of each of its lines, so (but for an exact tie) two
    # lines that do not overlap cannot both match the same one. Rivals exist only where lines of one side overlap heavily.
    matched: dict[int, int] = {}
    taken: set[int] = set()
    for _, t, f in sorted(candidates):
        if t not in matched and f not in taken:
            matched[t] = f
            taken.add(f)
    return sorted(matched.items())


def _shape(line: Line) -> BaseGeometry:
    """The outline as a valid shape with areas only, empty if it has none."""
    polygon = Polygon(line.polygon) if len(line.polygon) > 2 else Polygon()
    # "structure" keeps both lobes of an outline that crosses itself (buffer(0) drops one) and no stray lines.
    return make_valid(polygon, method="structure", keep_collapsed=False)


def _kendall_tau(order: Sequence[int]) -> float:
    if len(order) < 2:
        return 1.0
    swapped = sum(first > second for first, second in combinations(order, 2))
    return 1 - 4 * swapped / (len(order) * (len(order) - 1))
