"""Contexts as an operator sees them: whose each is, and whether it is a default."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Select, select

from scribe_pipeline.contexts.resolution import resolve_context
from scribe_pipeline.contexts.snapshots import ContextSnapshot
from scribe_pipeline.database.tables import contexts, workspaces
from scribe_pipeline.errors import Category, ScribeError


@dataclass(frozen=True)
class ContextListing:
    """A context with the name of its workspace, None for one that all workspaces see."""

    context: ContextSnapshot
    workspace: str | None
    description: str
    is_default: bool
    created_at: datetime
    updated_at: datetime


def all_contexts(connection: Connection) -> list[ContextSnapshot]:
    """Return every context of every workspace and of the system."""
    return [listed.context for listed in list_contexts(connection)]


def list_contexts(connection: Connection, workspace_id: UUID | None = None) -> list[ContextListing]:
    """Return the contexts that a workspace sees, or all there are; those of the system come first."""
    listed = _listed().order_by(workspaces.c.name.nulls_first(), contexts.c.name)
    if workspace_id is not None:
        listed = listed.where(contexts.c.workspace_id.is_(None) | (contexts.c.workspace_id == workspace_id))
    return [_listing(row) for row in connection.execute(listed)]


def load_context(connection: Connection, workspace_id: UUID | None, name: str) -> ContextListing:
    """Return the context that a workspace sees by that name, or, without a workspace, the system's.

    Raises ScribeError (invalid_argument) that lists the names there are.
    """
    if workspace_id is not None:
        found = contexts.c.id == resolve_context(connection, workspace_id, name).context.context_id
        return _listing(connection.execute(_listed().where(found)).one())
    of_system = contexts.c.workspace_id.is_(None)
    row = connection.execute(_listed().where(of_system, contexts.c.name == name)).one_or_none()
    if row is None:
        names = ", ".join(connection.scalars(select(contexts.c.name).where(of_system).order_by(contexts.c.name)))
        problem = f"no context {name!r} is everybody's; there are: {names}; for a workspace's own, give --workspace"
        raise ScribeError(Category.INVALID_ARGUMENT, problem)
    return _listing(row)


def _listed() -> Select[Any]:
    return select(contexts, workspaces.c.name.label("workspace")).outerjoin(workspaces, workspaces.c.id == contexts.c.workspace_id)


def _listing(row: Any) -> ContextListing:
    context = ContextSnapshot.model_validate(row)
    return ContextListing(context, row.workspace, row.description, row.is_default, row.created_at, row.updated_at)
