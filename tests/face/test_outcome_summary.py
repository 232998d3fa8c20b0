"""The summary of outcomes: what it shows is what the rows say, in numbers, as tables and as bars."""

import base64
import io
import re
from collections import Counter
from typing import Any

import dagster as dg
import numpy as np
import pytest
from PIL import Image as Picture

from definitions import build_defs
from scribe_pipeline.config import Settings
from tests.endings import Endings
from tests.houses import FakeEngines

DAY = 86_400
CLASSES = ("success", "pipeline_error", "fidelity", "compliance_only", "not_taggable", "cancelled")
COLOURS = ((0, 158, 115), (213, 94, 0), (0, 114, 178), (204, 121, 167), (240, 228, 66), (86, 180, 233))
# The time zone of the sessions is one in which it is another day at this hour than it is in UTC.
ANOTHER_DAY = """
DO $$ BEGIN
    EXECUTE format('ALTER DATABASE %I SET timezone = %L', current_database(),
                   CASE WHEN extract(hour FROM clock_timestamp() AT TIME ZONE 'UTC') < 11 THEN 'Etc/GMT+12' ELSE 'Etc/GMT-14' END);
END $$
"""


def summary(endings: Endings) -> dict[str, Any]:
    """What the summary shows that the standing checks' run has made, by its name."""
    settings = Settings(home=endings.house.folder, preserve_failure_notify_enabled=True)
    defs = build_defs(settings=settings, database=endings.house.engine)
    result = defs.resolve_job_def("standing_checks").execute_in_process(instance=dg.DagsterInstance.ephemeral())
    (made,) = result.asset_materializations_for_node("outcome_summary")
    return {name: value.value for name, value in made.metadata.items()}


def table(text: str) -> list[tuple[str, ...]]:
    """The rows of a table, without its head."""
    head, _, *lines = text.splitlines()
    rows = [tuple(re.split(r" (?<!\\)\| ", line)) for line in lines]
    assert {len(row) for row in rows} == {len(head.split(" | "))}
    return rows


def pictures(text: str) -> dict[str, np.ndarray]:
    """The pictures by what stands above them."""
    shown = re.findall(r"\*\*(.*)\*\*\n\n!\[\1\]\(data:image/png;base64,([^)]+)\)", text)
    opened = {name: Picture.open(io.BytesIO(base64.b64decode(png))) for name, png in shown}
    return {name: np.asarray(picture.convert("RGB")).astype(int) for name, picture in opened.items()}


def bars(picture: np.ndarray) -> list[list[int]]:
    """How long each part of each bar is, from above; bars are 400 pixels long, and one every 30."""
    rows = picture[40 + 15 :: 30, 281:680]
    return [[int((np.abs(row - colour).max(axis=-1) < 12).sum()) for colour in COLOURS] for row in rows]


def test_numbers_and_tables_are_what_the_rows_say(endings: Endings) -> None:
    """R170, R218: counts of each class, reasons with their digits normalised, producers, undelivered notices: by the queries."""
    for shape, count in zip(CLASSES, (5, 2, 3, 1, 1, 2), strict=True):
        endings.flyers(count, shape)
    endings.flyer("fidelity", failures=["pixel diff 7 on page 12"], preflight={"signals": {"producer": "Word | 16\n(x64)"}})
    endings.flyer("pipeline_error", error=None)
    endings.scan(endings.policy)
    endings.scan(endings.policy)
    said = {name.removeprefix("tagging jobs: "): value for name, value in summary(endings).items() if name.startswith("tagging")}
    assert {name: value for name, value in said.items() if not isinstance(value, str)} == {
        "recorded": 16, "failed": 9, "failed (%)": 56.2, "undelivered": 0,
        "success": 5, "pipeline_error": 3, "fidelity": 4, "compliance_only": 1, "not_taggable": 1, "cancelled": 2,
    }  # fmt: skip
    assert table(said["outcome mix"])[:2] == [("success", "5", "31.3"), ("fidelity", "4", "25.0")]
    assert table(said["top failures"]) == [("pixel diff N on page N", "4"), ("compliance: no title", "1")]
    assert table(said["pipeline errors"]) == [("worker lost", "2"), ("?", "1")]
    assert ("fidelity", "Word \\| 16 (x64)", "1") in table(said["class by producer"])
    assert sum(int(count) for *_, count in table(said["class by producer"])) == 9
    assert "notices not delivered" not in said


def test_notices_that_were_not_delivered_are_shown(endings: Endings) -> None:
    """R218: by state, and their number by itself."""
    endings.flyers(3)
    endings.sink.order(550, times=None)
    endings.scan()
    endings.policy = type(endings.policy)(enabled=True, recipient=None, lookback_hours=24, max_per_hour=12)
    endings.flyer()
    endings.scan()
    said = summary(endings)
    assert dict(table(said["tagging jobs: notices not delivered"])) == {"unconfigured": "4"}
    assert said["tagging jobs: undelivered"] == 4


def test_failure_rates_by_each_characteristic(endings: Endings) -> None:
    """R170, R218: a picture with a bar a value and rows of a table, by those of the query and by that which it begins with."""
    scan, text = ({"mode": mode, "tree_state": "absent", "signals": {"page_count": 3}} for mode in ("ocr", "text"))
    for shape, preflight, count in (("success", text, 6), ("fidelity", text, 2), ("success", scan, 1), ("fidelity", scan, 3)):
        for _ in range(count):
            endings.flyer(shape, preflight=preflight)
    endings.flyer("cancelled", preflight=scan)
    endings.scan()
    said = summary(endings)
    shown = pictures(said["tagging jobs: failure rates"])
    assert list(shown) == ["by scanned", "by producer", "by tree_state", "by pages", "by bytes"]
    assert bars(shown["by scanned"]) == [pytest.approx([300, 100, 0, 0, 0, 0], abs=3), pytest.approx([80, 240, 0, 0, 0, 0], abs=3)]
    assert table(said["tagging jobs: failure rates in numbers"]) == [
        ("scanned", "false", "8", "6", "25.0"), ("scanned", "true", "5", "1", "60.0"), ("producer", "?", "13", "7", "38.5"),
        ("tree_state", "absent", "13", "7", "38.5"), ("pages", "2-4", "13", "7", "38.5"), ("bytes", "?", "13", "7", "38.5"),
    ]  # fmt: skip


def test_the_mix_of_each_day(endings: Endings) -> None:
    """R170: one bar a day in UTC with the share of each class, days on which nothing ended too, of the last thirty."""
    endings.house.execute(ANOTHER_DAY)
    endings.house.engine.dispose()
    for days, shapes in ((40, ("success",)), (3, CLASSES), (1, ("success", "success", "success", "fidelity"))):
        for shape in shapes:
            endings.flyer(shape, ago=days * DAY)
    endings.scan()
    said = summary(endings)
    ended = endings.house.rows("SELECT (updated_at AT TIME ZONE 'UTC')::date::text, outcome_class FROM flyer_tagging_jobs")
    counted = Counter((day, outcome) for day, outcome in ended)
    rows = table(said["tagging jobs: mix by day in numbers"])
    days = [row[0] for row in rows]
    assert (days, len(days)) == (sorted(set(days), reverse=True), 3)
    assert {days[0], days[-1]} == {day for day, _ in ended} - {min(day for day, _ in ended)}
    assert all(row[1:] == tuple(str(counted[row[0], outcome]) for outcome in CLASSES) for row in rows)
    (picture,) = pictures(said["tagging jobs: mix by day"]).values()
    assert bars(picture) == [
        pytest.approx([67, 67, 67, 67, 67, 67], abs=3), [0] * 6, pytest.approx([300, 0, 100, 0, 0, 0], abs=3)
    ]  # fmt: skip


def test_transcriptions_have_characteristics_of_their_own(endings: Endings, engines: FakeEngines) -> None:
    """R170: by media type, context and engine, and by pages and bytes as tagging jobs are."""
    endings.failed_job()
    endings.scan()
    said = summary(endings)
    rows = table(said["transcription jobs: failure rates in numbers"])
    assert [row[:2] for row in rows] == [
        ("media_type", "image/png"), ("context", "letter"), ("engine", "?"), ("pages", "1"), ("bytes", "<250KB")
    ]  # fmt: skip
    assert len(pictures(said["transcription jobs: failure rates"])) == 5
    assert said["transcription jobs: pipeline_error"] == 1
    assert "transcription jobs: class by producer" not in said


def test_the_summary_of_a_new_house(endings: Endings) -> None:
    """R170: nothing has ended, and that is what it says."""
    said = summary(endings)
    assert set(said.values()) == {0}
    assert {name.partition(": ")[0] for name in said} == {"tagging jobs", "transcription jobs"}
