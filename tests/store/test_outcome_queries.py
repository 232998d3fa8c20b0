"""The six summary queries: run as they are, by who may only read, they give the numbers that one counts by hand."""

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

import pytest

from scribe_pipeline.database import DatabaseError
from scribe_pipeline.errors import ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.jobs import cancel_job
from scribe_pipeline.outcomes import QUERIES, Policy, ask, queries, query_text
from tests.endings import FLYERS, JOBS, Endings
from tests.houses import House

LONG = "page 1234567890: " + "é" * 300
# Class, state of the notice, facts; whatever fact is not named is null.
RECORDED: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("success", "none", {"scanned": False, "producer": "Canva", "tree_state": "absent", "pages": 1, "bytes": 100_000}),
    ("success", "none", {"scanned": False, "producer": "Canva", "tree_state": "absent", "pages": 2, "bytes": 249_999}),
    ("success", "none", {"scanned": True, "producer": "Word", "tree_state": "present-and-usable", "pages": 4, "bytes": 250_000}),
    ("success", "none", {}),
    ("fidelity", "sent", {"scanned": True, "producer": "Canva", "tree_state": "absent", "pages": 5, "bytes": 999_999,
                          "failures": ["pixel diff 0.12 on page 3", "qpdf: 2 warnings"]}),
    ("fidelity", "failed", {"scanned": True, "producer": "Word", "tree_state": "present-and-broken", "pages": 10,
                            "bytes": 1_000_000, "failures": ["pixel diff 0.7 on page 11", "pixel diff 1 on page 2"]}),
    ("compliance_only", "told", {"scanned": False, "producer": "Canva", "tree_state": "present-and-usable", "pages": 11,
                                 "bytes": 4_999_999, "failures": ["compliance: no title"]}),
    ("compliance_only", "digest", {"scanned": False, "producer": "Word", "pages": 32, "bytes": 5_000_000,
                                   "failures": ["compliance: no title"]}),
    ("not_taggable", "pending", {"scanned": True, "pages": 33, "bytes": 10, "error": "skipped: no text"}),
    ("pipeline_error", "sending", {"error": "worker 17 lost after 300.5 s", "failures": ["pixel diff 9 on page 9"]}),
    ("pipeline_error", "unconfigured", {"error": "worker 4 lost after 20.25 s"}),
    ("pipeline_error", "backfill", {"error": LONG}),
    ("cancelled", "none", {"error": "cancelled by user"}),
)  # fmt: skip
MIX = {
    ("success", 4, 30.8), ("pipeline_error", 3, 23.1), ("fidelity", 2, 15.4), ("compliance_only", 2, 15.4),
    ("not_taggable", 1, 7.7), ("cancelled", 1, 7.7),
}  # fmt: skip
ANSWERS: Mapping[str, set[tuple[Any, ...]]] = {
    "outcome_mix": MIX,
    "failure_rate": {("?", 5, 1, 60.0), ("true", 4, 1, 75.0), ("false", 4, 2, 50.0)},
    "class_by_producer": {
        ("pipeline_error", "(unknown)", 3), ("fidelity", "Canva", 1), ("fidelity", "Word", 1), ("compliance_only", "Canva", 1),
        ("compliance_only", "Word", 1), ("not_taggable", "(unknown)", 1),
    },
    "top_failures": {("pixel diff N on page N", 2), ("compliance: no title", 2), ("qpdf: N warnings", 1)},
    "pipeline_errors": {("worker N lost after N.N s", 2), ("page N: " + "é" * 132, 1)},
    "notices_not_delivered": {("pending", 1), ("sending", 1), ("failed", 1), ("unconfigured", 1), ("digest", 1)},
}  # fmt: skip
COUNTED_AT = {"outcome_mix": 1, "failure_rate": 1, "class_by_producer": 2, "top_failures": 1, "pipeline_errors": 1}


@pytest.fixture
def flyers(house: House) -> House:
    """The house with the jobs above, and one that has ended and has no outcome yet."""
    for outcome, notice, facts in RECORDED:
        claims = 0 if notice in ("none", "backfill", "unconfigured", "digest", "told") else 3 if notice == "failed" else 1
        state = {
            "notice": "digest" if notice == "told" else notice,
            "notice_attempts": claims,
            "notice_claimed_at": "2026-09-28T12:00:00.000000Z" if claims else None,
        }
        house.execute(
            """INSERT INTO flyer_tagging_jobs
                   (status, updated_at, outcome_class, outcome_facts, outcome_recorded_at, failure_notified_at)
               VALUES ('done', now() - interval '1 hour', :outcome, CAST(:facts AS jsonb), now(),
                       CASE WHEN :told THEN now() END)""",
            outcome=outcome,
            facts=json.dumps({"failures": [], "error": None, "producer": None, "scanned": None, "pages": None} | facts | state),
            told=notice in ("sent", "told"),
        )
    house.execute("INSERT INTO flyer_tagging_jobs (status, passed) VALUES ('done', true)")
    return house


def plain(rows: Iterable[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """Rows with their percentages as one writes them."""
    return [tuple(float(cell) if isinstance(cell, Decimal) else cell for cell in row) for row in rows]


@pytest.mark.parametrize("name", QUERIES)
def test_a_query_counts_as_one_counts_by_hand(flyers: House, name: str) -> None:
    """R170, R218: percentages, shares of failures, producers, digits as N, 140 characters; who has been told is not counted.

    The text runs as it is, by a session that may not write.
    """
    with flyers.engine.connect() as connection:
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        rows = [tuple(row) for row in connection.exec_driver_sql(query_text(name))]
    assert set(plain(rows)) == ANSWERS[name]
    assert len(rows) == len(ANSWERS[name])
    if name in COUNTED_AT:
        counts = [row[COUNTED_AT[name]] for row in rows]
        assert counts == sorted(counts, reverse=True)
    assert ask(flyers.engine, name, FLYERS).rows == rows


def test_columns_have_names(flyers: House) -> None:
    """R218: those of the query."""
    assert ask(flyers.engine, "outcome_mix", FLYERS).columns == ("outcome_class", "count", "pct")
    assert ask(flyers.engine, "failure_rate", FLYERS, "pages").columns == ("pages", "jobs", "ok", "fail_pct")


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("producer", {("Canva", 4, 2, 50.0), ("Word", 3, 1, 66.7), (None, 6, 1, 66.7)}),
        ("tree_state", {("absent", 3, 2, 33.3), ("present-and-usable", 2, 1, 50.0), ("present-and-broken", 1, 0, 100.0),
                        (None, 7, 1, 71.4)}),
        # as the document has it, an unknown number of pages is among the many
        ("pages", {("1", 1, 1, 0.0), ("2-4", 2, 2, 0.0), ("5-10", 2, 0, 100.0), ("11-32", 2, 0, 100.0), ("33+", 6, 1, 66.7)}),
        ("bytes", {("<250KB", 3, 2, 33.3), ("250KB-1MB", 2, 1, 50.0), ("1-5MB", 2, 0, 100.0), ("5MB+", 1, 0, 100.0),
                   ("?", 5, 1, 60.0)}),
        ("pdf_version", {("?", 13, 4, 61.5)}),
    ],
)  # fmt: skip
def test_failure_rates_by_each_characteristic(flyers: House, by: str, expected: set[tuple[Any, ...]]) -> None:
    """R170, R218: the listed dimensions with their buckets, each at its bounds, and any other fact."""
    assert set(plain(ask(flyers.engine, "failure_rate", FLYERS, by).rows)) == expected


def test_of_many_producers_the_first_thirty_are_told(house: House) -> None:
    """R218: those with most failures."""
    house.execute(
        """INSERT INTO flyer_tagging_jobs (status, updated_at, outcome_class, outcome_recorded_at, outcome_facts)
           SELECT 'failed', now() - interval '1 hour', 'pipeline_error', now(),
                  jsonb_build_object('producer', 'p' || least(number, 40), 'failures', '[]'::jsonb,
                                     'notice', 'backfill', 'notice_attempts', 0, 'notice_claimed_at', null)
           FROM generate_series(1, 42) AS number"""
    )
    rows = ask(house.engine, "class_by_producer", FLYERS).rows
    assert len(rows) == 30 and rows[0] == ("pipeline_error", "p40", 3)


def test_the_same_queries_are_about_transcriptions(house: House, endings: Endings) -> None:
    """R170, R218: one that was read, one with a line that was not, one that failed and one that was canceled."""
    house.job()
    house.complete(house.claim())
    house.job()
    house.complete(house.claim(), failed=1)
    cancel_job(house.engine, house.job(), Operator("reader@desk", "no need"))
    endings.failed_job()
    nobody = Policy(enabled=True, recipient=None, lookback_hours=24, max_per_hour=12)
    assert sum(endings.scan(nobody, (JOBS,)).recorded.values()) == 4
    answers = {name: plain(ask(house.engine, name, JOBS).rows) for name in QUERIES}
    assert set(answers["outcome_mix"]) == {
        ("success", 1, 25.0), ("fidelity", 1, 25.0), ("pipeline_error", 1, 25.0), ("cancelled", 1, 25.0)
    }  # fmt: skip
    assert answers["failure_rate"] == [("?", 4, 1, 50.0)]
    assert set(answers["class_by_producer"]) == {("pipeline_error", "(unknown)", 1), ("fidelity", "(unknown)", 1)}
    assert answers["top_failures"] == [("line: upstream", 1)]
    ((error, failed),) = answers["pipeline_errors"]
    assert error and failed == 1
    assert answers["notices_not_delivered"] == [("unconfigured", 2)]
    assert plain(ask(house.engine, "failure_rate", JOBS, "media_type").rows) == [("image/png", 4, 1, 50.0)]


def test_who_asks_cannot_write(flyers: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """R218: not by mistake of a query either; and the next transaction can."""
    monkeypatch.setattr(queries, "query_text", lambda *_: "DELETE FROM flyer_tagging_jobs RETURNING id")
    with pytest.raises(DatabaseError) as refused:
        ask(flyers.engine, "outcome_mix", FLYERS)
    assert refused.value.sqlstate == "25006"
    assert flyers.value("SELECT count(*) FROM flyer_tagging_jobs") == len(RECORDED) + 1
    assert flyers.execute("DELETE FROM flyer_tagging_jobs") == len(RECORDED) + 1


def test_an_unknown_query_is_not_run(house: House) -> None:
    """R218: it is refused by its name."""
    with pytest.raises(ScribeError, match=r"^there is no query 'everything'; there are: outcome_mix, [a-z_, ]+$"):
        ask(house.engine, "everything", FLYERS)
