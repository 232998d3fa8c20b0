"""Rows as other services may write them: whatever their columns hold is recorded, and no row holds up those behind it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from uuid import uuid4

from tests.endings import FLYERS, Endings

# What a column may be given that it is not meant for, in SQL.
VALUES = ("'null'", "'true'", "'-5'", "'1.5'", "'1e400'", "'\"word\"'", "'[1, null]'", "'{}'", "NULL")
SIGNALS = (
    "page_count", "producer", "creator", "pdf_version", "widget_count", "has_xfa", "unembedded_fonts", "substituted_fonts",
    "text_line_count", "raster_coverage",
)  # fmt: skip
PREFLIGHT = ("mode", "ocr_kind", "tree_state", "route", "eligible", "design_dense", "signals")
# What is of the kind that is meant after all.
FITTING: Mapping[str, set[str]] = {
    "'true'": {"has_xfa", "eligible", "design_dense"},
    "'-5'": {"raster_coverage"},
    "'1.5'": {"raster_coverage", "pdf_version"},
    "'\"word\"'": {"mode", "ocr_kind", "tree_state", "route", "producer", "creator"},
    "'[1, null]'": {"widget_count", "unembedded_fonts", "substituted_fonts", "text_line_count"},
}
# A number that is none of Python's, neither as an integer nor as a double.
BEYOND = "CAST(repeat('9', 400) || '.5' AS numeric)"
COLUMNS: Mapping[str, str] = {
    "many failures": "failures = (SELECT jsonb_agg('failure ' || number) FROM generate_series(1, 5000) AS number)",
    "a long failure": "failures = jsonb_build_array(repeat('not/this ', 100000))",
    "a long error": "error = repeat('e', 1000000)",
    "no pages": "charge_units = -1",
    "an empty key": "input_key = ''",
    "an unknown file": "file_id = gen_random_uuid()",
    "made after it ended": "created_at = updated_at + interval '1 day'",
}
FILES = (
    ("size", "-1"),
    ("name", "E'a\\nb.pdf'"),
    ("mime_type", "'Not a type'"),
    ("input_audit_score", "'NaN'"),
    ("input_audit_score", BEYOND),
    ("input_audit_band", "'Mr Brown''s'"),
)


def recorded(endings: Endings, changes: Iterable[str]) -> list[Mapping[str, Any]]:
    """The facts of failures whose rows were changed so; each is recorded and told of, and so is the one behind them."""
    ids = []
    for change in changes:
        ids.append(endings.flyer(status="processing", error="worker lost"))
        endings.house.execute(f"UPDATE flyer_tagging_jobs SET status = 'failed', {change} WHERE id = :id", id=ids[-1])
    behind = endings.flyer(ago=0)
    endings.unguarded("UPDATE flyer_tagging_jobs SET updated_at = updated_at - interval '300 seconds'")
    done, all_of_them = endings.scan(replace(endings.policy, max_per_hour=25), (FLYERS,)), len(ids) + 1
    assert (done.recorded, done.notices, done.problems) == ({"pipeline_error": all_of_them}, {"sent": all_of_them}, {})
    assert endings.notice(behind) == ("sent", 1)
    return [endings.outcome(job_id).outcome_facts for job_id in ids]


def holding(names: Iterable[str], value: str) -> str:
    """An object that has the same value under each name, in SQL."""
    entries = ", ".join(f"'{name}', {value}" for name in names)
    return f"jsonb_build_object({entries})"


def test_json_of_any_kind(endings: Endings) -> None:
    """R169, R217: values of another kind than is meant are unknown, in a column as in all that is read of it."""
    changes = []
    for value in VALUES:
        jsonb = f"CAST({value} AS jsonb)"
        preflight = f"{holding(PREFLIGHT, jsonb)} || jsonb_build_object('signals', {holding(SIGNALS, jsonb)})"
        changes.append(f"failures = {jsonb}, progress = {jsonb}, preflight = {preflight}")
    for value, facts in zip(VALUES, recorded(endings, changes), strict=True):
        kept = {name for name in (*SIGNALS, *PREFLIGHT) if facts.get(name) is not None}
        assert kept == FITTING.get(value, set()), value


def test_objects_of_any_kind(endings: Endings) -> None:
    """R169: the same for the columns that are meant to hold objects."""
    objects = ("preflight = {}", "preflight = jsonb_build_object('signals', {})", "progress = {}")
    changes = [change.format(f"CAST({value} AS jsonb)") for change in objects for value in ("'[\"none\"]'", "'7'", "NULL")]
    assert {facts["pages"] for facts in recorded(endings, changes)} == {None}


def test_numbers_beyond_measure(endings: Endings) -> None:
    """R169, R216: a number that a double cannot hold is unknown, and does not keep its row from being recorded."""
    changes = [f"preflight = jsonb_build_object('signals', {holding([name], BEYOND)})" for name in SIGNALS]
    for name, facts in zip(SIGNALS, recorded(endings, changes), strict=True):
        assert name == "pdf_version" or facts.get(name) is None


def test_columns_of_any_kind(endings: Endings) -> None:
    """R169, R214, R216: much, little and nonsense in the other columns."""
    for what, facts in zip(COLUMNS, recorded(endings, COLUMNS.values()), strict=True):
        assert facts["pages"] is None and facts["bytes"] is None
        assert (facts["duration_seconds"] == 0) is (what == "made after it ended")


def test_files_of_any_kind(endings: Endings) -> None:
    """R169: the same in the file's row; a score may be larger than any double."""
    ids = []
    for column, value in FILES:
        ids.append(uuid4())
        endings.house.execute(f"INSERT INTO files (id, {column}) VALUES (:id, {value})", id=ids[-1])
    for facts in recorded(endings, [f"file_id = '{file_id}'" for file_id in ids]):
        assert [facts[name] for name in ("bytes", "mime_type", "input_audit_score", "input_audit_band")] == [None] * 4
