"""What may stand in a job's facts, value by value: kinds, bounds, redaction, and cuts that leave whole characters."""

import json
import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribe_pipeline.database import load_json
from scribe_pipeline.outcomes.facts import (
    MAX_BYTES,
    MAX_COUNT,
    count,
    error_text,
    failure_texts,
    flag,
    label,
    mapping,
    media_type,
    number,
    slug,
    strings,
    version,
    word,
)

EMOJI = "\N{GRINNING FACE}"
# Characters of any kind, lone surrogates and NUL among them.
anything = st.text(st.characters(exclude_categories=()), max_size=40)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=6,
)


@given(junk)
def test_whatever_comes_in_only_values_of_the_right_kind_come_out(value: object) -> None:
    """R211, R216: each reader gives its own kind of value or None, and what it gives can be stored as jsonb."""
    counted = count(value)
    assert counted is None or (type(counted) is int and 0 <= counted <= MAX_COUNT)
    measured = number(value)
    assert measured is None or (type(measured) in (int, float) and math.isfinite(measured))
    assert flag(value) in (True, False, None)
    assert type(mapping(value)) is dict
    for text in (word(value), slug(value), media_type(value), version(value), label(value)):
        assert text is None or (isinstance(text, str) and storable(text))
    failures = failure_texts(strings(value))
    assert len(failures) <= 20 and all(isinstance(failure, str) and storable(failure) for failure in failures)


def storable(text: str) -> bool:
    text.encode()
    return "\x00" not in text


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0, 0), (7, 7), (7.0, 7), ([1, "a"], 2), ([], 0), (MAX_COUNT, MAX_COUNT), (MAX_COUNT + 1, None), (-1, None), (7.5, None),
        (True, None), (False, None), ("7", None), (None, None), ({}, None), (math.nan, None), (math.inf, None), (1e300, None),
    ],
)  # fmt: skip
def test_counts_are_whole_and_fit_an_integer(value: object, expected: int | None) -> None:
    """R212: the queries cast counts to ::int, so nothing else is one."""
    counted = count(value)
    assert (counted, type(counted)) == (expected, type(expected))


def test_bytes_fit_a_bigint() -> None:
    """R212: the queries cast bytes to ::bigint."""
    assert [count(value, MAX_BYTES) for value in (2**40, MAX_BYTES, MAX_BYTES + 1)] == [2**40, MAX_BYTES, None]


@pytest.mark.parametrize(
    ("value", "expected"),
    [(0.5, 0.5), (1, 1), (0, 0), (-0.25, -0.25), (True, None), ("1", None), (math.nan, None), (math.inf, None), (-math.inf, None)],
)
def test_numbers_are_such_as_json_has(value: object, expected: float | None) -> None:
    """R212: a number stays what it is; NaN and infinities are none."""
    assert number(value) == expected


@pytest.mark.parametrize("value", ["ocr", "present-and-usable", "pdf_ua1", "h1+h12", "full_retag", "B+", "A", "x" * 64])
def test_terms_stay(value: str) -> None:
    """R212: a term is what it was."""
    assert word(value) == value


@pytest.mark.parametrize(
    "value",
    ["", "Jane Doe", "jane@example.org", "letter.pdf", "a/b/c", "Ünsal", "OCR mode", "x" * 65, "zwei worte", 7, None, ["ocr"],
     "jane.doe", "203.0.113.7", "usr_2xkd81", "usr_xkd812", "4711", "1.7", "image/tiff", "ocr-", "_ocr", "a--b", "B++", "AB"],
)  # fmt: skip
def test_what_is_no_term_does_not_stay(value: object) -> None:
    """R211: where one word is expected, nothing that may tell of a person stays."""
    assert word(value) is None


@pytest.mark.parametrize(
    "value",
    [
        "image/tiff",
        "application/pdf",
        "image/svg+xml",
        "application/vnd.oasis.opendocument.text",
        "application/x-7z-compressed",
        "video/3gpp",
        "image/vnd.djvu",
        "application/vnd.apple.pages",
    ],
)
def test_media_types_stay(value: str) -> None:
    """R212: the type of a file is what it was."""
    assert media_type(value) == value


@pytest.mark.parametrize(
    "value",
    ["", "pdf", "uploads/jane", "jane/doe", "image/", "image/a/b", "image/jane@example.org", "image/tiff; name=jane", "image/x y",
     "images/tiff", "image/203.0.113.7", "image/jane_doe", "application/" + "x" * 81, 7, None, ["image/tiff"]],
)  # fmt: skip
def test_what_is_no_media_type_does_not_stay(value: object) -> None:
    """R211: one registered type and one subtype, or nothing."""
    assert media_type(value) is None


@pytest.mark.parametrize("value", ["kraken-blla", "qwen2.5", "letter", "org/model-7b:q4", "2nd"])
def test_names_that_the_house_gives_stay(value: str) -> None:
    """R212: models, contexts and providers are called as they are."""
    assert slug(value) == value


@pytest.mark.parametrize("value", ["", "Jane Doe", "jane@example.org", "letter.pdf", "a/b/c", "Ünsal", "x" * 65, 7, None, ["a"]])
def test_what_no_house_gives_as_a_name_does_not_stay(value: object) -> None:
    """R211: nothing with a space or a capital letter, and nothing that shows by its form what it is."""
    assert slug(value) is None


@pytest.mark.parametrize(("read", "value"), [(word, "jane-doe"), (slug, "jane.doe"), (media_type, "image/jane.doe")])
def test_what_the_row_knows_is_no_term(read: Callable[..., str | None], value: str) -> None:
    """R211: a name in small letters is known by the row alone."""
    assert read(value) == value
    assert read(value, {"Jane Doe"}) is None
    assert read(value, {"jane.doe"}) is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1.7", "1.7"), (1.7, "1.7"), (2, "2"), ("2.0", "2.0"), ("12.10.1", "12.10.1"), ("203.0.113.7", None), ("10.0.0.1", None),
     ("203.0.113", None), ("1.234", None), ("jane", None), ("", None), (None, None), (True, None), ([1.7], None),
     (math.inf, None), ("1.7 jane", None), ("1.7\n", None)],
)  # fmt: skip
def test_versions_are_numbers_with_dots(value: object, expected: str | None) -> None:
    """R211, R212: the version of a PDF may be text or a number; no address of a host is one."""
    assert version(value) == expected


@pytest.mark.parametrize(
    "value",
    ["Adobe PDF Library 17.0", "Microsoft® Word for Microsoft 365", "Skia/PDF m120", "GPL Ghostscript 9.26", "pdfTeX-1.40.21",
     "macOS Version 13.4 (Build 22F66) Quartz PDFContext", "Acrobat Distiller 10.1.16 (Macintosh)", "Adobe Illustrator(R) 24.1"],
)  # fmt: skip
def test_programs_keep_their_names(value: str) -> None:
    """R212: what made a file is told as it calls itself."""
    assert label(value) == value


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("Word of jane@example.org", "Word of [email]"),
        ("cairo 1.15 (https://example.org/jane)", "cairo 1.15 ([url])"),
        ("made from C:\\Users\\jane\\letter.docx", "made from [path]"),
        ("Jane Doe", "[name]"),
        ("", None), (None, None), (7, None), (["Word"], None),
    ],
)  # fmt: skip
def test_programs_do_not_tell_of_persons(value: object, expected: str | None) -> None:
    """R211: what can be told by its form, or is known, is replaced."""
    assert label(value, {"Jane Doe"}) == expected


PLANTED = {
    "jane@example.org": "[email]",
    "https://example.org/jane": "[url]",
    "/home/jane/scans/letter": "[path]",
    "jane-letter.pdf": "[file]",
    '"letter to jane.pdf"': '"[file]"',
    "3f2504e0-4f89-41d3-9a0c-0305e82c3301": "[id]",
    "Jane Doe": "[name]",
}


@pytest.mark.parametrize(("planted", "placeholder"), PLANTED.items())
def test_errors_and_failures_are_redacted(planted: str, placeholder: str) -> None:
    """R215: each pattern is replaced, in errors and in every failure; the words around it stay."""
    said, kept = f"cannot read {planted} on page 3", f"cannot read {placeholder} on page 3"
    assert error_text(said, ["Jane Doe"]) == kept
    assert failure_texts([said, said], ["Jane Doe"]) == [kept, kept]


def test_twenty_failures_at_most_are_kept() -> None:
    """R215: of 30 failures the first 20 stay, in their order."""
    assert failure_texts([f"pixel diff on page {page}" for page in range(30)]) == [f"pixel diff on page {n}" for n in range(20)]


CUTS: list[tuple[Callable[[str], str | None], int]] = [
    (error_text, 500),
    (lambda text: failure_texts([text])[0], 300),
    (label, 120),
]


@pytest.mark.parametrize(("keep", "limit"), CUTS)
@pytest.mark.parametrize("before", [-2, -1, 0, 1])
def test_a_cut_goes_between_characters(keep: Callable[[str], str | None], limit: int, before: int) -> None:
    """R216: an emoji at the cut stays whole or goes; the result is as long as it may be, and says that it was cut."""
    text = ("word " * limit)[: limit - 1 + before] + EMOJI * 3
    kept = keep(text)
    assert kept is not None and len(kept) == min(limit, len(text))
    assert (kept == text) == (len(text) <= limit)
    assert kept.endswith("…") == (len(text) > limit)
    assert json.loads(json.dumps(kept).encode()) == kept


@pytest.mark.parametrize("bad", ["\ud83d", "\x00", json.loads('"\\ude00"')])
def test_what_jsonb_refuses_is_left_out(bad: str) -> None:
    """R216: half a character and NUL go, wherever they come from; what is around them stays."""
    assert error_text(f"bad {bad}word") == "bad word"
    assert failure_texts([f"bad {bad}word"]) == ["bad word"]
    assert label(f"{bad}Word{bad}") == "Word" and label(bad) is None
    assert word(f"ocr{bad}") is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ()), ([], ()), (["a", "b"], ("a", "b")), ("a", ("a",)), ({"a": 1}, ('{"a": 1}',)), (7, ("7",)), (False, ("false",)),
        (["a", 1, None, ["b"]], ("a", "1", "null", '["b"]')),
    ],
)  # fmt: skip
def test_failures_are_strings_whatever_the_column_holds(value: object, expected: tuple[str, ...]) -> None:
    """R211: what is no list of strings is read as one."""
    assert strings(value) == expected


def test_json_that_python_cannot_hold_can_be_read() -> None:
    """R220: what the database takes, numbers of any length and objects of any depth, can be read and counts as unknown."""
    assert count(load_json("9" * 5000)) is None and number(load_json("9" * 5000)) is None
    assert load_json(b'{"a": 1' + b"0" * 400 + b"}") == {"a": 10**400}
    assert load_json("[" * 5000 + "]" * 5000) is None
    with pytest.raises(ValueError, match="Expecting"):
        load_json("no json")
