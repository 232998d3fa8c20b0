"""Which context a request gets: the one it names, or else what the workspace's rules say, or else a default."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal
from uuid import UUID

from sqlalchemy import Connection, Select, or_, select

from scribe_pipeline.contexts.rules import Metadata, list_rules
from scribe_pipeline.contexts.snapshots import ContextSnapshot
from scribe_pipeline.database.tables import contexts
from scribe_pipeline.errors import Category, ScribeError

_NOTHING_KNOWN: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Resolution:
    """The context of a request, why it is this one, and by which rule if one chose it."""

    context: ContextSnapshot
    reason: Literal["named", "rule", "workspace default", "system default"]
    rule_id: UUID | None = None


def resolve_context(
    connection: Connection, workspace_id: UUID, name: str | None = None, metadata: Metadata = _NOTHING_KNOWN
) -> Resolution:
    """Freeze the context of that name or id, or the one of the first rule that holds, or the default one.

    Only contexts of the workspace and of the system are seen, and the workspace's own go before the system's. Raises
    ScribeError (invalid_argument) that lists the names there are.
    """
    visible = _visible(workspace_id)
    if name is not None:
        wanted = contexts.c.name == name
        with suppress(ValueError):
            wanted = or_(wanted, contexts.c.id == UUID(name))
        if (row := connection.execute(visible.where(wanted)).first()) is not None:
            return Resolution(ContextSnapshot.model_validate(row), "named")
        raise _none_such(connection, visible, f"there is no context {name!r}")
    # no rule holds where nothing is known
    for rule in list_rules(connection, workspace_id) if metadata else ():
        if rule.holds(metadata):
            row = connection.execute(visible.where(contexts.c.id == rule.context_id)).one()
            return Resolution(ContextSnapshot.model_validate(row), "rule", rule.id)
    row = connection.execute(visible.where(contexts.c.is_default)).first()
    if row is None:
        raise _none_such(connection, visible, "no context is the default one: name one")
    return Resolution(ContextSnapshot.model_validate(row), "workspace default" if row.workspace_id else "system default")


def find_context(
    connection: Connection, workspace_id: UUID, name: str | None = None, metadata: Metadata = _NOTHING_KNOWN
) -> ContextSnapshot:
    """Freeze the context that `resolve_context` chooses, whyever it is the one. Raises what that raises."""
    return resolve_context(connection, workspace_id, name, metadata).context


def refresh_context(connection: Connection, context_id: UUID) -> ContextSnapshot | None:
    """Freeze a context as it is now, or None if it is gone."""
    row = connection.execute(select(contexts).where(contexts.c.id == context_id)).one_or_none()
    return None if row is None else ContextSnapshot.model_validate(row)


def _visible(workspace_id: UUID) -> Select[tuple[object, ...]]:
    seen = contexts.c.workspace_id.is_(None) | (contexts.c.workspace_id == workspace_id)
    return select(contexts).where(seen).order_by(contexts.c.workspace_id.nulls_last(), contexts.c.name)


def _none_such(connection: Connection, visible: Select[tuple[object, ...]], problem: str) -> ScribeError:
    names = dict.fromkeys(sorted(row.name for row in connection.execute(visible)))
    return ScribeError(Category.INVALID_ARGUMENT, f"{problem}; there are: {', '.join(names)}")
