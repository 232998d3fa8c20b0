"""Selection rules: conditions on an item's metadata, whether they hold, and the rules of a workspace in their order."""

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from math import isfinite
from typing import Literal, get_args
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, and_, select

from scribe_pipeline.contexts.texts import StorableText, is_storable
from scribe_pipeline.database.tables import context_selection_rules, contexts
from scribe_pipeline.errors import Category, ScribeError

rules = context_selection_rules

Metadata = Mapping[str, str | int | float | bool | None]
Comparison = Literal["eq", "neq", "contains", "starts_with", "ends_with"]

_HOLDS: dict[Comparison, Callable[[str, str], bool]] = {
    "eq": operator.eq,
    "neq": operator.ne,
    "contains": operator.contains,
    "starts_with": str.startswith,
    "ends_with": str.endswith,
}


class Condition(BaseModel):
    """What a field's value, as text, has to be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    field: StorableText = Field(min_length=1, max_length=255)
    operator: Comparison
    value: StorableText = Field(max_length=1024)

    def __str__(self) -> str:
        return f"{self.field} {self.operator} {self.value}".rstrip()

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Read FIELD OPERATOR VALUE. Raises ScribeError (invalid_argument)."""
        field, _, rest = text.partition(" ")
        name, _, value = rest.partition(" ")
        try:
            if not value:  # a variable of a shell that is not set
                raise ValueError
            return cls(field=field, operator=name, value=value)  # type: ignore[arg-type]
        except ValueError:
            raise ScribeError(
                Category.INVALID_ARGUMENT,
                f"{text!r} is no condition: write FIELD OPERATOR VALUE, the operator one of {', '.join(get_args(Comparison))}",
            ) from None

    def holds(self, metadata: Metadata) -> bool:
        """Whether the metadata has the field, and its value is so. A field that is missing, or null, never is."""
        value = metadata.get(self.field)
        return value is not None and _HOLDS[self.operator](_text_of(value), self.value)


@dataclass(frozen=True)
class Rule:
    """A workspace's rule: where all conditions hold, its context is the one."""

    id: UUID
    context_id: UUID
    context: str
    priority: int
    conditions: tuple[Condition, ...]
    created_at: datetime

    def holds(self, metadata: Metadata) -> bool:
        """Whether all conditions hold."""
        return all(condition.holds(metadata) for condition in self.conditions)


def list_rules(connection: Connection, workspace_id: UUID) -> list[Rule]:
    """Return the workspace's rules in the order in which they are tried.

    A rule for a context that the workspace does not see is none: no command makes one, and the storage audit tells of it.
    """
    seen = contexts.c.workspace_id.is_(None) | (contexts.c.workspace_id == rules.c.workspace_id)
    rows = connection.execute(
        select(rules.c.id, contexts.c.id, contexts.c.name, rules.c.priority, rules.c.conditions, rules.c.created_at)
        .join(contexts, and_(contexts.c.id == rules.c.context_id, seen))
        .where(rules.c.workspace_id == workspace_id)
        .order_by(rules.c.priority.desc(), rules.c.id)
    )
    return [Rule(*row[:4], tuple(map(Condition.model_validate, row.conditions)), row.created_at) for row in rows]


def check_metadata(metadata: object) -> Metadata:
    """Return an item's metadata: a flat JSON object of scalars. Raises ScribeError (invalid_argument) that names what is not."""
    if not isinstance(metadata, Mapping):
        raise ScribeError(Category.INVALID_ARGUMENT, "metadata is a flat JSON object: names with texts, numbers or truth values")
    for name, value in metadata.items():
        if not isinstance(name, str) or not name or not is_storable(name):
            raise ScribeError(Category.INVALID_ARGUMENT, f"{name!r} is no name for a field of metadata")
        scalar = value is None or isinstance(value, str | float) or (isinstance(value, int) and abs(value) < 2**63)
        if not scalar or (isinstance(value, float) and not isfinite(value)) or (isinstance(value, str) and not is_storable(value)):
            raise ScribeError(
                Category.INVALID_ARGUMENT, f"the metadata's field {name!r} is neither a text nor a number nor a truth value"
            )
    return metadata


def _text_of(value: str | int | float | bool) -> str:
    if isinstance(value, str):
        return value
    # as the database writes it, so that a rule says the same of metadata before and after they are stored
    return str(value).lower() if isinstance(value, bool) else format(Decimal(repr(value)), "f")
