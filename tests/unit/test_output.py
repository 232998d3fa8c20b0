"""Tables on a narrow terminal: what may be cut is cut, and nothing else; and JSON for people."""

import sys

import pytest

from commands.output import indented, print_table

LONG = "the bucket gs://scans for scans cannot be reached just now: try again later"


@pytest.mark.parametrize(("error", "key"), [(LONG, "k" * 105), ("short", "k" * 105), (LONG, "key"), (None, "ä" * 300)])
def test_only_the_columns_named_are_cut(capsys: pytest.CaptureFixture[str], error: str | None, key: str) -> None:
    """R48: status, attempts and times stay whole beside a long error and a long key, and a short one is not cut for a long one."""
    columns = ("kind", "status", "attempts", "next attempt", "last error", "key")
    row = ("triplet_presentation_image", "pending", "10/20", "2026-12-01 05:01:17", error, key)
    print_table(columns, [row], may_be_cut=("last error", "key"))
    head, line = capsys.readouterr().out.splitlines()
    assert all(column in head for column in columns)
    assert all(str(cell) in line for cell in row[:4])
    assert max(map(len, (head, line))) <= 160
    for cell in (error or "", key):
        assert cell[:8] in line and (len(cell) > 20 or cell in line)


def test_a_table_that_fits_is_not_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """R48: what has room is shown whole."""
    print_table(("name", "id"), [("a page", 7), (None, 8)], may_be_cut=("name",))
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [["name", "id"], ["a", "page", "7"], ["8"]]


def test_an_id_is_whole_on_any_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """R29: what `job show` takes is told whole on any terminal; a row is one line, no longer than what is in it."""
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "xterm")
    job = "01a22db8-5f0e-7b21-9f5c-f0a4c3e1d7aa"
    columns = ("job", "page", "status", "age", "attempts", "input", "category")
    rows = [
        (job, "a long name of a page.jpg", "pending", "2 h", "1/3", 1, "upstream_unavailable"),
        (job[::-1], "x", "done\n", 1, 2, 3, None),
    ]
    print_table(columns, rows, may_be_cut=("page",))
    head, first, second = capsys.readouterr().out.splitlines()
    assert all(column in head for column in columns)
    assert first.split()[0] == job and "upstream_unavailable" in first and "a long …" in first
    assert second.split() == [job[::-1], "x", "done", "1", "2", "3"] and second == second.rstrip()


@pytest.mark.parametrize(
    ("document", "shown"),
    [('{"a":[1,2.5,"é"]}', '{\n  "a": [\n    1,\n    2.5,\n    "é"\n  ]\n}'), ("[" * 100_000 + "]" * 100_000,) * 2],
    ids=["flat", "deep"],
)
def test_a_document_is_indented_if_it_can_be(document: str, shown: str) -> None:
    """R91: a page is shown by lines, and one that is nested beyond all measure is shown all the same."""
    assert indented(document) == shown
