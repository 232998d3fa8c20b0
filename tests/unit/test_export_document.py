"""What the formats say of a page: words and their places, blocks, order, directions and names."""

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from scribe_pipeline.engines import LineShape, LineText
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.exports.document import MAX_WORDS, Document, TextLine, read_document
from scribe_pipeline.pages import PageRevision, fill_lines, read_lines
from tests.exporting import IMAGE, page_of, revision, with_items
from tests.houses import line_shape


def document(page: PageRevision) -> Document:
    return read_document(IMAGE, page)


def only_line(page: PageRevision) -> TextLine:
    (line,) = document(page).lines
    return line


def places(line: TextLine) -> list[tuple[str, int, int]]:
    """Each word with its left edge and its width."""
    return [(word.text, word.box[0], word.box[2]) for word in line.words]


@pytest.mark.parametrize(
    ("text", "placed"),
    [
        ("one", [("one", 10, 380)]),
        ("one two three", [("one", 10, 126), ("two", 136, 126), ("three", 262, 128)]),
        ("אחת שתיים שלוש", [("אחת", 264, 126), ("שתיים", 138, 126), ("שלוש", 10, 128)]),
        ("كتب 1905 OK", [("كتب", 264, 126), ("1905", 138, 126), ("OK", 10, 128)]),
        ("1905 ...", [("1905", 10, 190), ("...", 200, 190)]),
        ("ABC كت", [("ABC", 10, 190), ("كت", 200, 190)]),
        ("", []),
        (" \t\x01 ", []),
    ],
)
def test_a_line_without_words_is_split(text: str, placed: list[tuple[str, int, int]]) -> None:
    """R163, R165: into pieces of one width from where it begins, the right in Hebrew and Arabic; the last takes what is left."""
    line = only_line(page_of(IMAGE, [line_shape(20)], [text]))
    assert places(line) == placed
    assert {(word.box[1], word.box[3], word.confidence) for word in line.words} <= {(20, 30, 0.5)}


@pytest.mark.parametrize("text", ["a b c d e f g", "א ב ג ד ה ו ז"])
@pytest.mark.parametrize("width", [1, 2, 5, 6, 7, 8, 20])
def test_pieces_stay_in_their_line(text: str, width: int) -> None:
    """R163: each has a pixel at least and none reaches over the line, however many words there are."""
    shape = LineShape(((50, 40), (50 + width, 40)), ((50, 20), (50 + width, 20), (50 + width, 45), (50, 45)))
    words = only_line(page_of(IMAGE, [shape], [text])).words
    assert [word.text for word in words] == text.split()
    assert all(word.box[2] >= 1 and word.box[0] >= 50 and word.box[0] + word.box[2] <= 50 + width for word in words)
    if width >= len(words):
        assert sum(word.box[2] for word in words) == width


def test_words_of_the_page_keep_their_places() -> None:
    """R163: in the order in which they are read, with the text of the line and the names of their annotations."""
    page = with_items(
        page_of(IMAGE, [line_shape(20)], ["one two"]), ("word", "200,22,60,20", "two"), ("word", "20,22,50,20", "one")
    )
    line = only_line(page)
    assert places(line) == [("one", 20, 50), ("two", 200, 60)]
    assert all(word.id.startswith("word-") for word in line.words)
    rightwards = with_items(
        page_of(IMAGE, [line_shape(20)], ["אחת שתיים"]), ("word", "20,22,50,20", "שתיים"), ("word", "200,22,60,20", "אחת")
    )
    assert places(only_line(rightwards)) == [("אחת", 200, 60), ("שתיים", 20, 50)]


def test_a_changed_line_takes_its_words_along() -> None:
    """R163: as many words as before keep their places; with another number the old places mean nothing."""
    words = (("word", "20,22,50,20", "one"), ("word", "200,22,60,20", "two"))
    same = only_line(with_items(page_of(IMAGE, [line_shape(20)], ["uno two"], confidence=0.9), *words))
    assert places(same) == [("uno", 20, 50), ("two", 200, 60)]
    assert [word.confidence for word in same.words] == [0.9, None], "the line's, where the word's belongs to another text"
    other = only_line(with_items(page_of(IMAGE, [line_shape(20)], ["one two three"]), *words))
    assert places(other) == [("one", 10, 126), ("two", 136, 126), ("three", 262, 128)]


def test_a_word_belongs_to_the_line_that_holds_most_of_it() -> None:
    """R163: also where lines overlap, or where another column has a line of the same height; one on no line is no word."""
    shapes = [line_shape(20, 10, 190), line_shape(40, 10, 190), line_shape(20, 210, 390)]
    page = with_items(
        page_of(IMAGE, shapes, ["left", "below", "right"]),
        ("word", "220,25,40,15", "right"),
        ("word", "20,24,40,15", "left"),
        ("word", "20,47,50,15", "below"),
        ("word", "300,200,50,15", "nowhere"),
    )
    assert [places(line) for line in document(page).lines] == [[("left", 20, 40)], [("below", 20, 50)], [("right", 220, 40)]]


def test_among_equals_the_nearest_line_has_the_word() -> None:
    """R163: a word that lies in two lines wholly belongs to the one whose middle is nearer."""
    shapes = [LineShape(((10, 80), (390, 80)), ((10, top), (390, top), (390, top + 60), (10, top + 60))) for top in (20, 50)]
    page = with_items(page_of(IMAGE, shapes, ["upper", "lower"]), ("word", "20,55,40,20", "upper"))
    upper, lower = document(page).lines
    assert places(upper) == [("upper", 20, 40)]
    assert places(lower) == [("lower", 10, 380)]


def test_lines_come_in_the_order_of_the_page() -> None:
    """R163: items decide, not places; a column is a block, and so is a page of one."""
    left = [line_shape(top, 10, 190) for top in (20, 60, 100)]
    right = [line_shape(top, 210, 390) for top in (20, 60)]
    blocks = document(page_of(IMAGE, [*left, *right], list("abcde"))).blocks
    assert [[line.text for line in block.lines] for block in blocks] == [["a", "b", "c"], ["d", "e"]]
    assert [block.box for block in blocks] == [(10, 20, 180, 110), (210, 20, 180, 70)]
    upwards = document(page_of(IMAGE, [line_shape(100), line_shape(20)], ["first", "second"]))
    assert [line.text for line in upwards.lines] == ["first", "second"]


def test_lines_belong_to_the_blocks_of_the_page() -> None:
    """R163: to the innermost that holds most of them; one that is interrupted comes twice, so that the order stays."""
    shapes = [line_shape(20), line_shape(60), line_shape(200), line_shape(100)]
    page = with_items(
        page_of(IMAGE, shapes, list("abcd")),
        ("block", "0,10,400,130", ""),
        ("paragraph", "0,15,400,80", ""),
        ("page", "0,0,400,300", "all"),
        ("glyph", "10,20,5,5", "a"),
    )
    blocks = document(page).blocks
    assert [[line.text for line in block.lines] for block in blocks] == [["a", "b"], ["c"], ["d"]]
    assert blocks[0].box == (0, 15, 400, 80) and blocks[2].box == (0, 10, 400, 130)
    twice = document(with_items(page_of(IMAGE, shapes, list("abcd")), ("block", "0,10,400,130", ""))).blocks
    assert [[line.text for line in block.lines] for block in twice] == [["a", "b"], ["c"], ["d"]]
    assert len({block.id for block in twice}) == 3


def test_names_stay_with_their_annotations() -> None:
    """R163: a line has the same name in each revision, and no two annotations have one."""
    shapes = [line_shape(20), line_shape(60)]
    before = page_of(IMAGE, shapes, ["one", "two"])
    first, _ = read_lines(before.payload)
    changed = json.loads(fill_lines(before.payload, {first.annotation_id: LineText("another", 1)}))
    changed["items"].reverse()
    after = revision(json.dumps(changed))
    assert [line.id for line in document(before).lines] == [line.id for line in document(after).lines][::-1]
    assert f"line-{first.annotation_id[-32:]}" == next(document(before).lines).id
    foreign = json.loads(before.payload)
    foreign["items"][1]["id"] = f"https://example.org/{first.annotation_id[-32:]}"
    assert len({line.id for line in document(revision(json.dumps(foreign))).lines}) == 2


def test_geometry_stays_in_the_image() -> None:
    """R163: what a person has drawn over the edge is cut off there, for no format takes less than nothing."""
    page = page_of(IMAGE, [line_shape(20)], ["text"])
    drawn = page.payload.replace("10,20 390,20 390,50 10,50", "-5,-7.4 1e9,20 390,5000").replace("10,42 390,42", "-1,42 401,42")
    line = only_line(replace(page, payload=drawn))
    assert line.polygon == ((0, 0), (400, 20), (390, 300)) and line.baseline == ((0, 42), (400, 42))
    assert line.box == (10, 20, 380, 30)


def test_the_time_is_the_revisions() -> None:
    """R92: in UTC, whatever the session's zone."""
    there = timezone(timedelta(hours=5, minutes=30))
    page = replace(page_of(IMAGE, [], []), created_at=datetime(2026, 1, 1, 3, 0, 0, 999_999, tzinfo=there))
    assert document(page).written_at == "2025-12-31T21:30:00Z"


def test_a_page_of_too_many_words_is_refused() -> None:
    """R163: in one sentence, before anything is built of it."""
    with pytest.raises(ScribeError, match="100,000 words") as caught:
        document(page_of(IMAGE, [line_shape(20)], ["a " * (MAX_WORDS + 1)]))
    assert caught.value.category is Category.TOO_LARGE
