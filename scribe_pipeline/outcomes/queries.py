"""The six summary queries, as files that an operator may as well run in psql, for either family of jobs. They only read."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from sqlalchemy import Engine, func, select

from scribe_pipeline.database import in_transaction
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.outcomes.families import FAMILIES, Family, FlyerTagging

QUERIES = ("outcome_mix", "failure_rate", "class_by_producer", "top_failures", "pipeline_errors", "notices_not_delivered")
# The one that has a dimension to swap, what stands for the dimension in it, and what its comment calls the others.
_SWAPPED = "failure_rate"
_DIMENSION = re.compile(r"coalesce\(outcome_facts->>'scanned', '\?'\)\s+AS scanned")
_OTHERS = "-- other dimensions:\n"


@dataclass(frozen=True)
class Answer:
    """What a query gave: the names of its columns, and its rows."""

    columns: Sequence[str]
    rows: Sequence[tuple[Any, ...]]


def query_text(name: str, family: Family = FAMILIES[FlyerTagging.table.name], by: str | None = None) -> str:
    """Return a query by its name, about a family's jobs; `by` is the characteristic by which failure rates are told.

    Raises ScribeError (invalid_argument) for a name that there is not.
    """
    if name not in QUERIES:
        raise ScribeError(Category.INVALID_ARGUMENT, f"there is no query {name!r}; there are: {', '.join(QUERIES)}")
    query = resources.files(__package__).joinpath("queries", f"{name}.sql").read_text("utf-8")
    if by is not None:
        if name != _SWAPPED or re.fullmatch(r"[a-z][a-z0-9_]{0,62}", by) is None:
            raise ScribeError(
                Category.INVALID_ARGUMENT, f"{name} cannot be told by {by!r}: {_SWAPPED} can, by a fact such as pages"
            )
        expression = dimensions().get(by, f"coalesce(outcome_facts->>'{by}', '?')")
        query = _DIMENSION.sub(f"{expression} AS {by}", query)
    return query.replace(FlyerTagging.table.name, family.name)


def dimensions() -> Mapping[str, str]:
    """Return the characteristics that the failure rate's own comment lists: an SQL expression by the name of its fact."""
    listed = query_text(_SWAPPED).partition(_OTHERS)[2]
    expressions = [
        re.sub(r"^-- +", "", entry, flags=re.MULTILINE).strip() for entry in re.split(r"^--   (?=\S)", listed, flags=re.M)
    ]
    return {re.findall(r"->>'(\w+)'", expression)[0]: expression for expression in expressions if expression}


def recorded_facts(engine: Engine, family: Family) -> Sequence[str]:
    """Return the names of the facts that recorded jobs of a family have; none if no job is recorded."""
    jobs = family.table
    names = select(func.jsonb_object_keys(jobs.c.outcome_facts).label("name")).where(jobs.c.outcome_facts.is_not(None)).distinct()
    return in_transaction(engine, lambda connection: connection.scalars(names.order_by("name")).all())


def ask(engine: Engine, name: str, family: Family, by: str | None = None) -> Answer:
    """Run a query in a transaction that only reads. Raises ScribeError (invalid_argument) for a name that there is not."""
    query = query_text(name, family, by)

    def run(connection: Any) -> Answer:
        result = connection.exec_driver_sql(query)
        return Answer(tuple(result.keys()), [tuple(row) for row in result])

    return in_transaction(engine.execution_options(postgresql_readonly=True), run)
