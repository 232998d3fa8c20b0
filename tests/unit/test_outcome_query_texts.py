"""The summary queries as texts: they are the document's, about either family, by every characteristic that it lists."""

import pytest

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.outcomes import FAMILIES, QUERIES, dimensions, query_text
from tests.conftest import SHARED

DOCUMENT = SHARED / "mission" / "O-preserve-outcome-record.txt"
JOBS = FAMILIES["transcription_jobs"]


@pytest.mark.skipif(not DOCUMENT.is_file(), reason=f"{DOCUMENT.name} is not there")
def test_the_queries_are_those_of_the_document() -> None:
    """R218: six, in its order, to the letter."""
    section = DOCUMENT.read_text("utf-8").partition("safe to run against prod.\n\n")[2].partition("\n\nDeploy order")[0]
    assert [query_text(name).strip() for name in QUERIES] == section.split("\n\n")
    assert len(QUERIES) == 6


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_about_either_family(name: str) -> None:
    """R218: nothing but the table differs."""
    assert query_text(name).count("flyer_tagging_jobs") == 1
    assert query_text(name, JOBS) == query_text(name).replace("flyer_tagging_jobs", "transcription_jobs")


def test_the_listed_dimensions_are_known() -> None:
    """R218: with the expressions of the query's own comment."""
    assert list(dimensions()) == ["producer", "tree_state", "pages", "bytes"]
    assert dimensions()["tree_state"] == "outcome_facts->>'tree_state'"
    pages = dimensions()["pages"].splitlines()
    assert (pages[0], pages[-1]) == ("CASE WHEN (outcome_facts->>'pages')::int <= 1 THEN '1'", "ELSE '33+' END")


@pytest.mark.parametrize("by", ["producer", "tree_state", "pages", "bytes"])
def test_a_listed_dimension_is_swapped_in(by: str) -> None:
    """R218: its expression stands where that of `scanned` stood, and nothing else has changed."""
    before = "SELECT coalesce(outcome_facts->>'scanned', '?')          AS scanned,"
    assert query_text("failure_rate").count(before) == 1
    assert query_text("failure_rate", by=by) == query_text("failure_rate").replace(before, f"SELECT {dimensions()[by]} AS {by},")


def test_any_other_fact_is_told_in_the_same_way() -> None:
    """R170: as `scanned` is."""
    assert "SELECT coalesce(outcome_facts->>'media_type', '?') AS media_type," in query_text("failure_rate", JOBS, "media_type")


@pytest.mark.parametrize(
    ("name", "by", "words"),
    [
        ("outcome_mixes", None, "there is no query 'outcome_mixes'; there are: outcome_mix, failure_rate, "),
        ("", None, "there is no query ''"),
        ("../queries/outcome_mix", None, "there is no query "),
        ("outcome_mix", "pages", "outcome_mix cannot be told by 'pages'"),
        ("failure_rate", "pages'; DROP TABLE files; --", "failure_rate cannot be told by "),
        ("failure_rate", "Pages", "failure_rate cannot be told by 'Pages'"),
        ("failure_rate", "pages\n", "failure_rate cannot be told by "),
        ("failure_rate", "", "failure_rate cannot be told by ''"),
    ],
)
def test_what_there_is_not_is_refused_in_one_line(name: str, by: str | None, words: str) -> None:
    """R218: a name is nothing that could reach a file or the database."""
    with pytest.raises(ScribeError) as refused:
        query_text(name, by=by)
    assert refused.value.message.startswith(words) and "\n" not in refused.value.message
    assert refused.value.category is Category.INVALID_ARGUMENT
