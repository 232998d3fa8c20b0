"""What kinds of files fail, as an asset: each materialization is what the outcome record says at that moment, family by family.

But for the days, the numbers are those of the queries that an operator may run.
"""

from collections.abc import Mapping, Sequence
from datetime import date
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg
from sqlalchemy import Engine

from assets.metadata import markdown_pictures, markdown_table
from scribe_pipeline.config import Settings
from scribe_pipeline.database import in_transaction
from scribe_pipeline.metrics import draw_shares
from scribe_pipeline.outcomes import (
    FAMILIES,
    QUERIES,
    UNMIGRATED,
    Answer,
    Family,
    OutcomeClass,
    ask,
    dimensions,
    is_recordable,
    notice_policies,
    outcomes_by_day,
)

if TYPE_CHECKING:
    import pandas as pd

_DAYS, _MAX_VALUES, _MAX_CELL = 30, 8, 140
_FLYERS = FAMILIES["flyer_tagging_jobs"]
# Facts that transcription jobs have and tagging jobs have not, and those of the query's own list that both have.
_OF_JOBS, _OF_BOTH = ("media_type", "context", "engine"), ("pages", "bytes")
# In the order in which they stand in a bar: what is well, what failed, what was stopped.
_CLASSES = (
    OutcomeClass.SUCCESS,
    OutcomeClass.PIPELINE_ERROR,
    OutcomeClass.FIDELITY,
    OutcomeClass.COMPLIANCE_ONLY,
    OutcomeClass.NOT_TAGGABLE,
    OutcomeClass.CANCELLED,
)


@dg.asset(
    group_name="outcomes",
    kinds={"pandas"},
    description=(
        "What became of jobs that have ended: the share of each class, altogether and by day; how often jobs on files of a kind "
        "fail; why they do; notices that were not delivered. Of those families of jobs whose outcomes are to be recorded."
    ),
)
def outcome_summary(settings: dg.ResourceParam[Settings], database: dg.ResourceParam[Engine]) -> dg.MaterializeResult[None]:
    """Show each family's answers as tables and as bars; the numbers are metadata of their own, which the UI plots."""
    metadata: dict[str, dg.MetadataValue] = {}
    for family in notice_policies(settings):
        if not in_transaction(database, partial(is_recordable, family=family)):
            metadata[f"{family.kind} jobs"] = dg.MetadataValue.text(UNMIGRATED)
            continue
        answers = {name: ask(database, name, family) for name in _questions(family)}
        rates = {by: ask(database, "failure_rate", family, by) for by in _characteristics(family)}
        days = in_transaction(database, partial(outcomes_by_day, family=family, days=_DAYS))
        told: dict[str, dg.MetadataValue] = {**_numbers(answers)}
        told |= {name.replace("_", " "): _table(answer) for name, answer in answers.items() if answer.rows}
        if answers["outcome_mix"].rows:
            told["failure rates"] = markdown_pictures([(f"by {by}", _rate_bars(answer)) for by, answer in rates.items()])
            told["failure rates in numbers"] = _rate_table(rates)
        if days:
            mix = _mix(days)
            told["mix by day"] = markdown_pictures([(f"by the day on which they ended, of the last {_DAYS}", _mix_bars(mix))])
            told["mix by day in numbers"] = markdown_table(mix[::-1].reset_index().to_dict("records"))
        metadata |= {f"{family.kind} jobs: {name}": value for name, value in told.items()}
    return dg.MaterializeResult(metadata=metadata)


def _questions(family: Family) -> Sequence[str]:
    """The queries that are asked once; a transcription job's file has no producer."""
    return [name for name in QUERIES if name != "failure_rate" and (family is _FLYERS or name != "class_by_producer")]


def _characteristics(family: Family) -> Sequence[str]:
    """The facts by which failure rates are told."""
    return ("scanned", *dimensions()) if family is _FLYERS else (*_OF_JOBS, *_OF_BOTH)


def _numbers(answers: Mapping[str, Answer]) -> Mapping[str, dg.MetadataValue]:
    counts: dict[str, int] = {**dict.fromkeys(_CLASSES, 0), **{name: number for name, number, _ in answers["outcome_mix"].rows}}
    recorded, failed = sum(counts.values()), sum(number for name, number in counts.items() if OutcomeClass(name).is_failure)
    undelivered = sum(number for _, number in answers["notices_not_delivered"].rows)
    numbers = {"recorded": recorded, "failed": failed, "undelivered": undelivered} | counts
    return {str(name): dg.MetadataValue.int(number) for name, number in numbers.items()} | (
        {"failed (%)": dg.MetadataValue.float(round(100 * failed / recorded, 1))} if recorded else {}
    )


def _table(answer: Answer) -> dg.MetadataValue:
    return markdown_table([dict(zip(answer.columns, map(_cell, row), strict=True)) for row in answer.rows])


def _rate_table(rates: Mapping[str, Answer]) -> dg.MetadataValue:
    return markdown_table(
        [
            {"characteristic": by, "value": _cell(value), "jobs": jobs, "ok": ok, "fail_pct": percent}
            for by, answer in rates.items()
            for value, jobs, ok, percent in answer.rows[:_MAX_VALUES]
        ]
    )


def _cell(value: object) -> str:
    """One line that stays in its cell, whatever other services call things."""
    return "?" if value is None else " ".join(str(value).split())[:_MAX_CELL]


def _mix(days: Sequence[tuple[date, OutcomeClass, int]]) -> "pd.DataFrame":
    """Jobs by class, a row a day, those between in which none ended included."""
    import pandas as pd

    frame = pd.DataFrame(days, columns=["day", "class", "jobs"]).pivot(index="day", columns="class", values="jobs")
    every = pd.date_range(frame.index.min(), frame.index.max()).date
    return frame.reindex(index=pd.Index(every, name="day"), columns=list(_CLASSES)).fillna(0).astype(int)


def _mix_bars(mix: "pd.DataFrame") -> bytes:
    rows = [(f"{day}: {sum(counts)}", sum(counts), counts) for day, *counts in mix.itertuples()]
    return draw_shares(rows, [outcome.value.replace("_", " ") for outcome in _CLASSES])


def _rate_bars(answer: Answer) -> bytes:
    rows = [
        (f"{_cell(value)}: {jobs}", jobs, (ok, round(float(percent) * jobs / 100)))
        for value, jobs, ok, percent in answer.rows[:_MAX_VALUES]
    ]
    return draw_shares(rows, ["success", "failed"])
