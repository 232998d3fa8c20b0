"""Workspaces by their names."""

from uuid import UUID

from sqlalchemy import Connection, select

from scribe_pipeline.database.tables import workspaces
from scribe_pipeline.errors import Category, ScribeError


def workspace_id(connection: Connection, name: str) -> UUID:
    """Return the id of the workspace of that name. Raises ScribeError (invalid_argument) that lists the names there are."""
    found: UUID | None = connection.scalar(select(workspaces.c.id).where(workspaces.c.name == name))
    if found is None:
        names = ", ".join(connection.scalars(select(workspaces.c.name).order_by(workspaces.c.name)))
        raise ScribeError(Category.INVALID_ARGUMENT, f"there is no workspace {name!r}; there are: {names}")
    return found
