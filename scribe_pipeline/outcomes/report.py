"""How the outcome record stands, for those who watch it. Reads only."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date

from sqlalchemy import Connection, Date, cast, func, select

from scribe_pipeline.outcomes.classes import OutcomeClass
from scribe_pipeline.outcomes.families import Family
from scribe_pipeline.outcomes.records import is_recordable, oldest_unrecorded


@dataclass(frozen=True)
class Waiting:
    """The job that a scan would take first; `bucket` is the number, since 1970, of the ten minutes that it is now.

    `seconds` is for how long it could have been taken.
    """

    job_id: str
    seconds: float
    bucket: int


def longest_waiting(connection: Connection, families: Collection[Family]) -> Waiting | None:
    """Return the job of these families that has waited longest for its outcome to be recorded; None if none waits.

    Families whose columns are not there yet wait for the migration: the scan says so.
    """
    there = [family for family in families if is_recordable(connection, family)]
    found = [row for family in there if (row := oldest_unrecorded(connection, family)) is not None]
    if not found:
        return None
    first = min(found, key=lambda row: row.updated_at)
    bucket = connection.scalar(select(func.floor(func.extract("epoch", func.clock_timestamp()) / 600)))
    return Waiting(str(first.id), float(first.waits), int(bucket or 0))


def outcomes_by_day(connection: Connection, family: Family, days: int) -> Sequence[tuple[date, OutcomeClass, int]]:
    """Return how many jobs ended in which class on each of the last so many days (in UTC, today included), as far as any did."""
    jobs = family.table
    day = cast(func.timezone("UTC", jobs.c.updated_at), Date)
    today = cast(func.timezone("UTC", func.clock_timestamp()), Date)
    counted = (
        select(day, jobs.c.outcome_class, func.count())
        .where(jobs.c.outcome_class.is_not(None), day > select(today - days).scalar_subquery())
        .group_by(day, jobs.c.outcome_class)
        .order_by(day)
    )
    return [(ended, OutcomeClass(outcome), number) for ended, outcome, number in connection.execute(counted)]
