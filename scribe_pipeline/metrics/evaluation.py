"""The score of one page: which ground-truth lines were found, in which order, and how well they were read.

Pure functions over lines. Where the lines come from, and what is done with the score, does not belong here.
"""

import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise
from statistics import fmean

import jiwer
from shapely import Polygon, STRtree, make_valid, unary_union
from shapely.geometry.base import BaseGeometry

MIN_IOU = 0.5  # of the outlines' areas, at or above which two lines are the same line
NORMALISATION = "NFKC, straight quotation marks, every dash a hyphen, single spaces"
NORMALISATION_NFC = "NFC, single spaces"

_QUOTES = str.maketrans("‘’‚‛“”„‟", "''''\"\"\"\"")  # noqa: RUF001 - the look-alikes are the point
_DASHES_OUTSIDE_PD = "\N{MINUS SIGN}\N{SOFT HYPHEN}"


@dataclass(frozen=True)
class Line:
    """One line of a page: its outline as (x, y) in image pixels, not closed, and its text ('' if it has none).

    `box_only` says of a ground-truth line that whoever made it knew its box and nothing closer.
    """

    polygon: tuple[tuple[float, float], ...]
    text: str
    box_only: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Tally:
    """So many of so many: a rate that can be pooled over pages."""

    count: int = 0
    of: int = 0

    @property
    def rate(self) -> float | None:
        """The share; None if there was nothing to count."""
        return self.count / self.of if self.of else None

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.count + other.count, self.of + other.of)


@dataclass(frozen=True)
class PageScore:
    """What was counted on a page, or on several (`pooled`), and the measures made of it.

    Measures are from 0 to 1, `order_tau` from -1; error rates may exceed 1. None is a measure of nothing: no two lines to have an
    order, no line with text. The tallies of characters and words are edits of ground-truth characters and words: on matched
    lines under `NORMALISATION` and under `NORMALISATION_NFC`, and on the whole page in reading order.
    """

    gt_lines: int
    found_lines: int
    matched: int
    coverage: float
    order_tau: float | None
    successors: Tally
    characters: Tally
    characters_nfc: Tally
    words: Tally
    page_characters: Tally
    page_words: Tally

    @property
    def recall(self) -> float:
        """The share of ground-truth lines that were found; 1.0 if there are none to find."""
        return self.matched / self.gt_lines if self.gt_lines else 1.0

    @property
    def precision(self) -> float:
        """The share of found lines that are ground-truth lines; 1.0 if none was found."""
        return self.matched / self.found_lines if self.found_lines else 1.0

    @property
    def cer(self) -> float | None:
        """Edits by characters on matched lines."""
        return self.characters.rate

    def measures(self) -> dict[str, float | None]:
        """All measures by the names that reports give them."""
        return {
            "recall": self.recall,
            "precision": self.precision,
            "coverage": self.coverage,
            "order_tau": self.order_tau,
            "adjacency": self.successors.rate,
            "cer": self.cer,
            "cer_nfc": self.characters_nfc.rate,
            "wer": self.words.rate,
            "page_cer": self.page_characters.rate,
            "page_wer": self.page_words.rate,
        }


def evaluate(found: Sequence[Line], truth: Sequence[Line]) -> PageScore:
    """Score the lines found against the ground truth, both in reading order.

    A line matches at most one other, at an IoU of `MIN_IOU` or more (`match_lines`). `coverage` is the share of the area of all
    ground-truth lines that lies in some found line. `order_tau` is Kendall's tau over the matched lines; `successors` counts the
    ground-truth lines that are found, as is the next one, and how many of them are followed by it among the matched lines found.

    Text is compared on matched lines, all edits by all reference characters (or words); and on whole pages, the lines joined by
    spaces, where lines that were missed, invented or out of order cost as many edits as it takes to put them right. Ground-truth
    lines without text are left out, and what was read there with them, for nobody has transcribed them.
    """
    pairs = match_lines(found, truth)
    order = [f for _, f in pairs]
    texts = [(truth[t].text, found[f].text) for t, f in pairs]
    compared = [(normalise(reference), normalise(read)) for reference, read in texts]
    untranscribed = {f for (_, f), (reference, _) in zip(pairs, compared, strict=True) if not reference}
    read_page = (line.text for f, line in enumerate(found) if f not in untranscribed)
    page = [(normalise(" ".join(line.text for line in truth)), normalise(" ".join(read_page)))]
    return PageScore(
        gt_lines=len(truth),
        found_lines=len(found),
        matched=len(pairs),
        coverage=_coverage(found, truth),
        order_tau=_kendall_tau(order),
        successors=_successors(pairs),
        characters=_edits(jiwer.process_characters, compared),
        characters_nfc=_edits(jiwer.process_characters, [(_nfc(reference), _nfc(read)) for reference, read in texts]),
        words=_edits(jiwer.process_words, compared),
        page_characters=_edits(jiwer.process_characters, page),
        page_words=_edits(jiwer.process_words, page),
    )


def pooled(scores: Sequence[PageScore]) -> PageScore:
    """The score of one or more pages: coverage and tau are their means, all else is counted over all of them."""
    taus = [score.order_tau for score in scores if score.order_tau is not None]
    return PageScore(
        gt_lines=sum(score.gt_lines for score in scores),
        found_lines=sum(score.found_lines for score in scores),
        matched=sum(score.matched for score in scores),
        coverage=fmean(score.coverage for score in scores),
        order_tau=fmean(taus) if taus else None,
        successors=sum((score.successors for score in scores), Tally()),
        characters=sum((score.characters for score in scores), Tally()),
        characters_nfc=sum((score.characters_nfc for score in scores), Tally()),
        words=sum((score.words for score in scores), Tally()),
        page_characters=sum((score.page_characters for score in scores), Tally()),
        page_words=sum((score.page_words for score in scores), Tally()),
    )


def match_lines(found: Sequence[Line], truth: Sequence[Line]) -> list[tuple[int, int]]:
    """Index pairs (truth, found) of lines that are the same, one to one, in ground-truth order.

    They share `MIN_IOU` of their outlines' union, or of their boxes' where the ground truth is a box. An outline without area
    matches none.
    """
    polygons, boxes = _shapes(found)
    # it looks at boxes only, and so serves both
    tree = STRtree(polygons)
    candidates = []
    for t, line in enumerate(truth):
        shape = _shape(line)
        others = boxes if line.box_only else polygons
        for f in tree.query(shape).tolist():
            shared = shape.intersection(others[f]).area
            iou = shared / (shape.area + others[f].area - shared)
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


def normalise(text: str) -> str:
    """The text as it is compared.

    NFKC (so a long s is an s, a ligature its letters); curly and low quotation marks straight (guillemets stay: they are another
    mark); every dash (Unicode class Pd, minus sign, soft hyphen) a hyphen-minus; runs of white space one space, none at the ends.
    """
    # NFKC first: it turns compatibility forms (full-width quotes, small dashes) into the characters replaced afterwards.
    straight = unicodedata.normalize("NFKC", text).translate(_QUOTES)
    dashed = "".join("-" if unicodedata.category(c) == "Pd" or c in _DASHES_OUTSIDE_PD else c for c in straight)
    return " ".join(dashed.split())


def _nfc(text: str) -> str:
    return " ".join(unicodedata.normalize("NFC", text).split())


def _edits(
    process: Callable[[list[str], list[str]], jiwer.CharacterOutput | jiwer.WordOutput], pairs: Iterable[tuple[str, str]]
) -> Tally:
    """Edits of reference characters or words, as `process` takes them; pairs without a reference are left out."""
    compared = [(reference, read) for reference, read in pairs if reference]
    if not compared:
        return Tally()
    told = process([reference for reference, _ in compared], [read for _, read in compared])
    wrong = told.substitutions + told.deletions
    return Tally(wrong + told.insertions, wrong + told.hits)


def _coverage(found: Sequence[Line], truth: Sequence[Line]) -> float:
    polygons, boxes = _shapes(found)
    covered = area = 0.0
    for box_only, outlines in ((False, polygons), (True, boxes)):
        lines = unary_union([_shape(line) for line in truth if line.box_only is box_only])
        covered += lines.intersection(unary_union(outlines)).area
        area += lines.area
    return min(1.0, covered / area) if area else 1.0


def _shapes(lines: Sequence[Line]) -> tuple[list[BaseGeometry], list[BaseGeometry]]:
    """The outlines of found lines, and their boxes."""
    polygons = [_shape(line) for line in lines]
    return polygons, [polygon.envelope for polygon in polygons]


def _shape(line: Line) -> BaseGeometry:
    """The outline as a valid shape with areas only, empty if it has none."""
    polygon = Polygon(line.polygon) if len(line.polygon) > 2 else Polygon()
    # "structure" keeps both lobes of an outline that crosses itself (buffer(0) drops one) and no stray lines.
    return make_valid(polygon, method="structure", keep_collapsed=False)


def _kendall_tau(order: Sequence[int]) -> float | None:
    if len(order) < 2:
        return None
    swapped = sum(first > second for first, second in combinations(order, 2))
    return 1 - 4 * swapped / (len(order) * (len(order) - 1))


def _successors(pairs: Sequence[tuple[int, int]]) -> Tally:
    place = {f: number for number, f in enumerate(sorted(f for _, f in pairs))}
    kept = [place[f2] == place[f1] + 1 for (t1, f1), (t2, f2) in pairwise(pairs) if t2 == t1 + 1]
    return Tally(sum(kept), len(kept))
