"""What docs/tagging-jobs.md tells other services to write is what is read: words, columns, statuses, and which class they give."""

import inspect
import re

import pytest

from scribe_pipeline.database.tables import files, flyer_tagging_jobs
from scribe_pipeline.outcomes import FAMILIES, Verdict, classify, families, predicates
from tests.conftest import ROOT

DOCUMENT = (ROOT / "docs" / "tagging-jobs.md").read_text("utf-8")
OUTCOME = {"outcome_class", "outcome_facts", "outcome_recorded_at", "failure_notified_at"}


def quoted(text: str) -> list[str]:
    """What stands there as code."""
    return re.findall("`([^`]+)`", text)


def table(heading: str) -> list[list[str]]:
    """The cells of the table whose head begins so, a list a row."""
    _, head, rest = DOCUMENT.partition(heading)
    assert head, heading
    lines = rest.partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]


def test_the_words_are_those_that_are_matched() -> None:
    """R176: each list of the one place where they stand, whole and in its order, and no other."""
    told = [(quoted(where), quoted(words)) for where, words, _ in table("| in | a text begins with |")]
    assert told == [
        (["failures"], [*predicates.COMPLIANCE_ONLY]),
        (["error"], [*predicates.CANCELLED]),
        (["error"], [*predicates.CANCELLED_ALONE]),
        (["error"], [*predicates.SOURCE_DELETED]),
        (["error"], [predicates.SKIPPED]),
    ]


@pytest.mark.parametrize(
    ("number", "failures", "error"),
    [
        (0, ["pixel diff"], "lost"),
        (1, ["WCAG 1.1", "compliance: no title"], None),
        (2, ["wcag 1.1", "pixel diff"], "skipped: no text"),
        (2, [], None),
        (3, [], "skipped: no text"),
        (4, [], "Skipped: no text"),
        (4, [], None),
        (5, [], "Cancelled by user"),
        (5, [], "source deleted"),
        (5, [], "The_source-file was deleted"),
        (5, [], "canceled"),
        (6, [], "canceled: deadline exceeded"),
        (6, ["compliance: no title"], "lost"),
        (6, [], None),
    ],
)
def test_the_classes_are_those_that_are_recorded(number: int, failures: list[str], error: str | None) -> None:
    """R175, R176: each row of the table, with examples of what it says."""
    status, passed, _, recorded = table("| `status` | `passed` |")[number]
    verdict = Verdict(quoted(status) == ["done"], {"true": True, "false": False}.get(passed), tuple(failures), error)
    assert quoted(recorded) == [classify(verdict).value]


def test_the_statuses_are_those_that_end_a_job() -> None:
    """R172: those of the table, and of no other is it said that a job has ended."""
    assert {*FAMILIES["flyer_tagging_jobs"].terminal} == {name for row in table("| `status` |") for name in quoted(row[0])}


def test_the_columns_are_those_that_there_are() -> None:
    """R212: each column of both tables is spoken of, but for ids and times that are nobody's to give, and no other is."""
    columns = {name for row in table("| column of `flyer_tagging_jobs` |") for name in quoted(row[0])} - {"signals"}
    spoken_of = columns | {"status", "passed", "failures", "error", "updated_at"} | OUTCOME
    assert spoken_of == {*flyer_tagging_jobs.c.keys()} - {"id"}
    assert spoken_of <= {*quoted(DOCUMENT)}
    of_files = quoted(DOCUMENT.partition("Of `files` the columns ")[2])
    assert {*of_files} == {*files.c.keys()} - {"id", "user_id", "created_at", "updated_at"}


@pytest.mark.parametrize(
    ("reading", "row", "others"),
    [(r"preflight\.get", 1, {"ocr"}), (r"signals\.get", 2, set()), (r"progress\)\.get", 3, {"page_count"})],
    ids=["preflight", "signals", "progress"],
)
def test_what_is_read_of_an_object_is_told(reading: str, row: int, others: set[str]) -> None:
    """R212: the names in a job's objects, all of them; what else is named is no part of the object."""
    read = re.findall(reading + r'\("(\w+)"\)', inspect.getsource(families.FlyerTagging))
    assert read and {*quoted(table("| column of `flyer_tagging_jobs` |")[row][1])} == {*read} | others
