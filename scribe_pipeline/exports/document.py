"""What the formats say of a page: blocks, lines and words of one committed revision. How a format says it does not belong here.

Boxes are x, y, width and height in whole pixels of the upright image. Text is in logical order, whatever its direction.
"""

import hashlib
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from scribe_pipeline.engines import Point
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.pages import Image, PageAnnotation, PageRevision, read_annotations

Box = tuple[int, int, int, int]
# A row each of lefts, tops, widths and heights.
Boxes = NDArray[np.int64]
Numbers = NDArray[np.float64]

# No page has as many; a tree of more would take a gigabyte of memory.
MAX_WORDS = 100_000
# White space that parts words; what may not be broken stays in its word.
_BETWEEN_WORDS = re.compile("[^\\S\u00a0\u2007\u202f]+")
_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OWN_TAIL = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True)
class Word:
    """A word and its place, which is reckoned if the page does not say it. Confidence is 0 to 1, None if it is not known."""

    id: str
    text: str
    box: Box
    confidence: float | None


@dataclass(frozen=True)
class TextLine:
    """A line; without words if nothing was read."""

    id: str
    box: Box
    polygon: tuple[Point, ...]
    baseline: tuple[Point, ...]
    confidence: float | None
    right_to_left: bool
    words: tuple[Word, ...]

    @property
    def text(self) -> str:
        """The line's words with one space between two."""
        return " ".join(word.text for word in self.words)


@dataclass(frozen=True)
class Block:
    """Lines that belong together, and the box around them."""

    id: str
    box: Box
    lines: tuple[TextLine, ...]


@dataclass(frozen=True)
class Document:
    """A page. `frame` is its number in the scanned file, from 1; `written_at` is the time of its revision in ISO 8601, UTC."""

    file: str
    frame: int
    width: int
    height: int
    written_at: str
    payload: str
    blocks: tuple[Block, ...]

    @property
    def lines(self) -> Iterator[TextLine]:
        """The lines of all blocks, in the page's order."""
        return chain.from_iterable(block.lines for block in self.blocks)


def read_document(image: Image, page: PageRevision) -> Document:
    """Return what the formats say of a revision of the image's page. Lines are in the order of its items.

    Raises ScribeError (too_large) for a page of more than 100,000 words.
    """
    found = read_annotations(page.payload, "block", "paragraph", "line", "word")
    lines, words, areas = (
        [annotation for annotation in found if annotation.granularity in granularities]
        for granularities in (("line",), ("word",), ("block", "paragraph"))
    )
    said = [_words_of(line.text) for line in lines]
    if sum(map(len, said)) > MAX_WORDS:
        problem = f"the page of {image.label} has more than {MAX_WORDS:,} words: look what happened to it before it is exported"
        raise ScribeError(Category.TOO_LARGE, problem)
    own_words: list[list[PageAnnotation]] = [[] for _ in lines]
    for word, owner in zip(words, _owners(words, lines, _vertical_distance), strict=True):
        if owner is not None:
            own_words[owner].append(word)
    text_lines = [_text_line(image, *parts) for parts in zip(lines, said, own_words, strict=True)]
    return Document(
        file=_NOT_IN_XML.sub("", image.file),
        frame=image.frame,
        width=image.width,
        height=image.height,
        written_at=page.created_at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        payload=page.payload,
        blocks=tuple(_blocks(image, text_lines, areas, _owners(lines, areas, _size))),
    )


def _words_of(text: str) -> list[str]:
    """Return a text's words without the characters that XML 1.0 cannot hold."""
    parts = (_NOT_IN_XML.sub("", part) for part in _BETWEEN_WORDS.split(text))
    return [part for part in parts if part]


def _owners(
    inner: Sequence[PageAnnotation], outer: Sequence[PageAnnotation], tie: Callable[[Box, Boxes], Numbers]
) -> list[int | None]:
    """Return for each of `inner` which of `outer` shares the largest part of its box, the least by `tie` among equals."""
    if not outer:
        return [None] * len(inner)
    boxes = np.array([annotation.box for annotation in outer]).T

    def owner(box: Box) -> int | None:
        across, down = (
            np.minimum(boxes[axis] + boxes[axis + 2], box[axis] + box[axis + 2]) - np.maximum(boxes[axis], box[axis])
            for axis in (0, 1)
        )
        shared = np.maximum(across, 0) * np.maximum(down, 0)
        largest = shared.max()
        return int(np.where(shared == largest, tie(box, boxes), np.inf).argmin()) if largest else None

    return [owner(annotation.box) for annotation in inner]


def _vertical_distance(box: Box, boxes: Boxes) -> Numbers:
    distances: Numbers = np.abs((box[1] + box[3] / 2) - (boxes[1] + boxes[3] / 2))
    return distances


def _size(_box: Box, boxes: Boxes) -> Numbers:
    sizes: Numbers = (boxes[2] * boxes[3]).astype(float)
    return sizes


def _text_line(image: Image, line: PageAnnotation, said: list[str], words: list[PageAnnotation]) -> TextLine:
    """Return a line with its words: where the page says they are if it has as many as the text, else in pieces of the line."""
    name, right_to_left = _name(image, "line", line), _is_right_to_left(line.text)
    words = sorted(words, key=lambda word: -(word.box[0] + word.box[2]) if right_to_left else word.box[0])
    if len(words) == len(said):
        placed = [
            Word(_name(image, "word", word), text, word.box, word.confidence if word.text == text else line.confidence)
            for word, text in zip(words, said, strict=True)
        ]
    else:
        pieces = _pieces(line.box, len(said), right_to_left)
        placed = [
            Word(f"{name}-{number}", text, box, line.confidence)
            for number, (text, box) in enumerate(zip(said, pieces, strict=True), start=1)
        ]
    return TextLine(
        id=name,
        box=line.box,
        polygon=_inside(image, line.shape.polygon),
        baseline=_inside(image, line.shape.baseline),
        confidence=line.confidence,
        right_to_left=right_to_left,
        words=tuple(placed),
    )


def _pieces(box: Box, count: int, right_to_left: bool) -> list[Box]:
    """Split a box into pieces of the same width from where the line begins; the last one takes what is left.

    With more pieces than pixels, those that find no pixel left share the last one.
    """
    left, top, width, height = box
    share = max(1, width // max(1, count))
    pieces = []
    for number in range(count):
        start = min(number * share, width - 1)
        taken = width - start if number == count - 1 else share
        pieces.append((left + (width - start - taken if right_to_left else start), top, taken, height))
    return pieces


def _is_right_to_left(text: str) -> bool:
    """Whether most of the characters that have a direction of their own run from right to left."""
    directions = [unicodedata.bidirectional(char) for char in text]
    return directions.count("R") + directions.count("AL") > directions.count("L")


def _blocks(
    image: Image, lines: Sequence[TextLine], areas: Sequence[PageAnnotation], owners: Sequence[int | None]
) -> Iterator[Block]:
    """Group consecutive lines: those of one area, and outside areas those that lie in one column.

    An area whose lines do not follow each other comes as several blocks, so that the order of the lines stays.
    """
    runs: list[tuple[int | None, list[TextLine]]] = []
    for line, owner in zip(lines, owners, strict=True):
        if runs and runs[-1][0] == owner and (owner is not None or _in_one_column(runs[-1][1][-1].box, line.box)):
            runs[-1][1].append(line)
        else:
            runs.append((owner, [line]))
    seen: set[str] = set()
    for number, (owner, members) in enumerate(runs, start=1):
        around = [point for line in members for point in (*line.polygon, *line.baseline, *corners(line.box))]
        name = f"block-{number}"
        if owner is not None:
            around += corners(areas[owner].box)
            name = _name(image, "block", areas[owner])
            name = f"{name}-{number}" if name in seen else name
        seen.add(name)
        xs, ys = zip(*around, strict=True)
        yield Block(name, (min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)), tuple(members))


def _in_one_column(one: Box, other: Box) -> bool:
    """Whether one box lies above the other by at least half the width of the narrower."""
    shared = min(one[0] + one[2], other[0] + other[2]) - max(one[0], other[0])
    return 2 * shared >= min(one[2], other[2])


def corners(box: Box) -> tuple[Point, ...]:
    """Return a box's corners, clockwise from the upper left."""
    x, y, width, height = box
    return (x, y), (x + width, y), (x + width, y + height), (x, y + height)


def _inside(image: Image, points: Sequence[Point]) -> tuple[Point, ...]:
    return tuple((min(max(x, 0), image.width), min(max(y, 0), image.height)) for x, y in points)


def _name(image: Image, kind: str, annotation: PageAnnotation) -> str:
    """Return an XML name that is the annotation's alone in any revision: by the tail of an id made here, by a digest of others."""
    tail = annotation.annotation_id.removeprefix(f"{image.page_id}/items/")
    if not _OWN_TAIL.fullmatch(tail):
        tail = f"x{hashlib.sha256(annotation.annotation_id.encode()).hexdigest()[:32]}"
    return f"{kind}-{tail}"
