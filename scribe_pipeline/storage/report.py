"""How storage stands, for those who watch it: removals that wait or were given up, and what each workspace holds. Reads only."""

from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import Connection, and_, case, func, select

from scribe_pipeline.database.tables import item_images, page_exports, resource_cleanup_outbox, workspaces
from scribe_pipeline.workspaces import Usage, read_usage

outbox = resource_cleanup_outbox


@dataclass(frozen=True)
class CleanupHealth:
    """Removals that were given up, those that are due but not done, and for how many seconds the oldest of these has been."""

    failed: int
    due: int
    oldest_due_seconds: float


@dataclass(frozen=True)
class WorkspaceStorage:
    """A quota, the number of images, and the bytes of their exports, which are no part of the quota."""

    quota: Usage
    images: int
    export_bytes: int


def cleanup_health(connection: Connection, kinds: Collection[str]) -> CleanupHealth:
    """Return how the cleanup outbox stands; what is due is counted among these kinds, those that somebody removes.

    A removal that has failed counts from when its row was made: its next attempt is always a little ahead.
    """
    now = func.clock_timestamp()
    since = case((outbox.c.last_error.is_(None), outbox.c.next_attempt_at), else_=outbox.c.created_at)
    due = and_(outbox.c.kind.in_(kinds), outbox.c.status != "failed", since <= now)
    row = connection.execute(
        select(
            func.count().filter(outbox.c.status == "failed"),
            func.count().filter(due),
            func.coalesce(func.extract("epoch", now - func.min(since).filter(due)), 0),
        ).select_from(outbox)
    ).one()
    return CleanupHealth(row[0], row[1], float(row[2]))


def workspace_storage(connection: Connection) -> list[WorkspaceStorage]:
    """Return what each workspace holds; all of them together, whose quota names none, come first."""
    images = select(func.count()).where(item_images.c.workspace_id == workspaces.c.id).scalar_subquery()
    exported = func.coalesce(func.sum(page_exports.c.size_bytes), 0)
    exports = select(exported).where(page_exports.c.workspace_id == workspaces.c.id).scalar_subquery()
    quotas = read_usage(connection)
    held = {name: (number, int(size)) for name, number, size in connection.execute(select(workspaces.c.name, images, exports))}
    together = (sum(number for number, _ in held.values()), sum(size for _, size in held.values()))
    return [WorkspaceStorage(quota, *(together if quota.workspace is None else held[quota.workspace])) for quota in quotas]
