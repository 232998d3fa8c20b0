"""Pages shown to BLLA piece by piece: which piece, what is made of its lines, and what is detected but not found by it."""

from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pytest
from PIL import Image

from scribe_pipeline.engines import LineShape
from scribe_pipeline.engines.columns import Quads
from scribe_pipeline.engines.kraken_columns import KrakenColumns

WIDTH, HEIGHT = 1000, 2000


def quad(left: int, top: int, right: int, bottom: int) -> list[tuple[int, int]]:
    return [(left, top), (right, top), (right, bottom), (left, bottom)]


def line(left: int, right: int, baseline: int) -> LineShape:
    return LineShape(((left, baseline), (right, baseline)), tuple(quad(left, baseline - 20, right, baseline + 5)))


@dataclass
class FakeDetector:
    """Finds lines where it is told; each 28 high, its baseline 22 below its top."""

    quads: list[list[tuple[int, int]]]
    version: str = "fake"

    def find(self, picture: Image.Image) -> Quads:
        return np.array(self.quads, dtype=float).reshape(-1, 4, 2)


@dataclass
class FakeBlla:
    """Finds, of the lines that it is given in the page's pixels, those whose ink it is shown; and notes what it was shown."""

    lines: list[LineShape]
    shown: list[tuple[Image.Image, int]] = field(default_factory=list)
    engine: str = "fake"

    def segment(self, picture: Image.Image, least_height: int = 0) -> tuple[LineShape, ...]:
        self.shown.append((picture, least_height))
        # the ink of a line is the colour of its number, so that a piece says where it was cut
        pixels = np.asarray(picture)
        rows, columns = np.nonzero((pixels[:, :, 1:] == 0).all(axis=2))
        numbers = pixels[rows, columns, 0]
        found = []
        for number, shape in enumerate(self.lines):
            own = numbers == number
            if own.any():
                start, at = shape.baseline[0]
                found.append(shape.moved(int(columns[own].min()) - start, int(rows[own].max()) - at))
        return tuple(found)


def ink(number: int) -> tuple[int, int, int]:
    return (number, 0, 0)


def draw(lines: list[LineShape], height: int = HEIGHT) -> Image.Image:
    """A white page with each line's baseline in a colour of its own, and ink as high as the line is."""
    picture = Image.new("RGB", (WIDTH, height), "white")
    for number, shape in enumerate(lines):
        (left, at), (right, _) = shape.baseline
        picture.paste((0, 0, 1), (left, at - 20, right + 1, at + 5))
        picture.paste(ink(number), (left, at, right + 1, at + 1))
    return picture


def segment(
    lines: list[LineShape], quads: list[list[tuple[int, int]]], found: list[LineShape] | None = None, height: int = HEIGHT
) -> tuple[list[LineShape], FakeBlla]:
    blla = FakeBlla(lines if found is None else found)
    engine = KrakenColumns(cast(Any, FakeDetector(quads)), cast(Any, blla))
    return list(engine.segment(draw(blla.lines, height))), blla


def column(left: int, right: int, lines: int, top: int = 100) -> list[LineShape]:
    return [line(left, right, top + 30 * number) for number in range(lines)]


def detected(lines: list[LineShape]) -> list[list[tuple[int, int]]]:
    return [quad(left, at - 22, right, at + 6) for ((left, at), (right, _)) in (shape.baseline for shape in lines)]


LEFT, RIGHT = column(50, 450, 10), column(500, 900, 10)


def baselines(lines: list[LineShape]) -> list[tuple[int, int]]:
    return [shape.baseline[0] for shape in lines]


def test_columns_are_shown_one_by_one_and_read_one_after_the_other() -> None:
    """R158, R160: two columns are two pieces; neither shows anything of the other; the lines come back where they were."""
    rows = [shape for pair in zip(LEFT, RIGHT, strict=True) for shape in pair]
    found, blla = segment(rows, detected(rows))
    assert [piece.width < 500 for piece, _ in blla.shown] == [True, True]
    assert baselines(found) == baselines(LEFT + RIGHT)


def test_a_page_of_one_column_is_shown_as_it_is() -> None:
    found, blla = segment(LEFT, detected(LEFT))
    assert [(piece.size, least) for piece, least in blla.shown] == [((WIDTH, HEIGHT), 0)]
    assert baselines(found) == baselines(LEFT)


def test_a_low_picture_is_not_enlarged() -> None:
    """Lines 30 pixels apart on a picture 300 high would be shown 180 apart; they are shown 50 apart."""
    lines = column(50, 450, 6)
    _, blla = segment(lines, detected(lines), height=300)
    assert [least for _, least in blla.shown] == [30 * 1800 / 50]


def test_a_long_column_is_shown_in_parts_and_no_line_comes_twice() -> None:
    lines = column(50, 450, 140, top=60)
    found, blla = segment([], detected(lines), found=lines, height=4400)
    assert [len({*np.asarray(piece)[:, :, 0].ravel()} - {255}) > 40 for piece, _ in blla.shown] == [True] * 3
    assert baselines(found) == baselines(lines)


def test_few_lines_by_themselves_are_taken_as_they_were_detected() -> None:
    """R88: a headline is never shown alone, as a strip that would be enlarged to the model's height."""
    headline = [line(50, 900, 60)]
    found, blla = segment(headline + LEFT + RIGHT, detected(headline + LEFT + RIGHT))
    assert len(blla.shown) == 2
    assert found[0].box == (50, 38, 850, 28)
    assert baselines(found)[1:] == baselines(LEFT + RIGHT)


def test_what_is_not_found_in_a_piece_is_taken_as_it_was_detected() -> None:
    left = [*LEFT[:4], *LEFT[5:]]
    found, _ = segment([], detected(LEFT + RIGHT), found=left + RIGHT)
    assert [shape.box[1] for shape in found] == sorted(shape.box[1] for shape in found[:10]) + [
        shape.box[1] for shape in found[10:]
    ]
    assert len(found) == 20
    assert found[4].box == (50, 198, 400, 28)


def test_fragments_of_a_line_give_way_to_the_line() -> None:
    fragments = [line(50, 200, 220), line(260, 450, 220)]
    found, _ = segment([], detected(LEFT + RIGHT), found=[*LEFT[:4], *LEFT[5:], *fragments, *RIGHT])
    assert len(found) == 20
    assert found[4].box == (50, 198, 400, 28)


def test_on_a_whole_page_only_what_is_missing_altogether_is_added() -> None:
    """A line that is found in part is left as it is: on a page by hand the engine knows better."""
    part = line(50, 300, LEFT[4].baseline[0][1])
    found, _ = segment([], detected(LEFT), found=[*LEFT[:4], part, *LEFT[5:7], *LEFT[8:]])
    assert len(found) == 10
    assert found[4].baseline == part.baseline
    assert found[7].box == (50, 288, 400, 28)


def test_writing_that_stands_upright_is_no_line() -> None:
    found, _ = segment(LEFT, [*detected(LEFT), quad(950, 100, 970, 400)])
    assert len(found) == len(LEFT)


def test_upright_writing_between_columns_is_no_line() -> None:
    found, _ = segment(LEFT + RIGHT, [*detected(LEFT + RIGHT), quad(465, 100, 485, 400)])
    assert baselines(found) == baselines(LEFT + RIGHT)


@pytest.mark.parametrize("size", [(1, 1), (3, 1500), (1500, 3)])
def test_an_empty_page_has_no_lines(size: tuple[int, int]) -> None:
    engine = KrakenColumns(cast(Any, FakeDetector([])), cast(Any, FakeBlla([])))
    assert engine.segment(Image.new("RGB", size, "white")) == ()
