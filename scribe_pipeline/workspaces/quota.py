"""Quotas: how many bytes of uploads a workspace, and all of them together, may hold, hold, and have been promised.

Whoever changes what is held has both counters locked (`guards`), before any other row: no two find the same room. What is
used is given back by a confirmed removal alone, which is `removal`'s.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from uuid import UUID

import uuid_utils.compat as uuid_utils
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    ScalarSelect,
    Text,
    and_,
    cast,
    delete,
    func,
    insert,
    or_,
    select,
    true,
    update,
)

from scribe_pipeline.database import after, in_transaction, lock
from scribe_pipeline.database.tables import resource_cleanup_outbox, storage_quota_usage, storage_reservations, workspaces
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator, record_audit
from scribe_pipeline.workspaces.names import workspace_id as id_of

usage, reservations, outbox = storage_quota_usage, storage_reservations, resource_cleanup_outbox

GLOBAL = "global"
_SWEPT_AT_ONCE = 500
_MIB = 1024**2


@dataclass(frozen=True)
class Usage:
    """A quota: its workspace's name (None for all of them) and bytes; those that wait to be removed are among the used ones."""

    workspace: str | None
    limit_bytes: int
    used_bytes: int
    reserved_bytes: int
    pending_bytes: int

    @property
    def free_bytes(self) -> int:
        """What an upload may have; less than nothing if the limit was lowered."""
        return self.limit_bytes - self.used_bytes - self.reserved_bytes


def guards(workspace_id: UUID | ScalarSelect[UUID]) -> ColumnElement[bool]:
    """The counters that an upload into this workspace concerns, to be locked before all else."""
    return or_(usage.c.scope == GLOBAL, usage.c.scope == cast(workspace_id, Text))


def read_usage(connection: Connection, which: ColumnElement[bool] | None = None) -> list[Usage]:
    """Return the quotas, that of all workspaces first."""
    of_scope = or_(usage.c.scope == GLOBAL, usage.c.scope == cast(outbox.c.workspace_id, Text))
    given_up = and_(of_scope, outbox.c.status != "staged")
    pending = select(func.coalesce(func.sum(outbox.c.storage_bytes), 0)).where(given_up).scalar_subquery()
    rows = connection.execute(
        select(workspaces.c.name, usage.c.limit_bytes, usage.c.used_bytes, usage.c.reserved_bytes, pending)
        .join_from(usage, workspaces, cast(workspaces.c.id, Text) == usage.c.scope, isouter=True)
        .where(true() if which is None else which)
        .order_by(usage.c.scope != GLOBAL, workspaces.c.name)
    )
    return [Usage(name, limit, used, reserved, int(waiting)) for name, limit, used, reserved, waiting in rows]


def set_limit(engine: Engine, workspace: str | None, limit_bytes: int, operator: Operator) -> None:
    """Change how much a workspace may hold, or all of them together; what is stored stays.

    Raises ScribeError (invalid_argument) for an unknown workspace.
    """

    def change(connection: Connection) -> None:
        scope = GLOBAL if workspace is None else str(id_of(connection, workspace))
        if connection.execute(update(usage).where(usage.c.scope == scope).values(limit_bytes=limit_bytes)).rowcount != 1:
            raise _no_counters()
        subject = "storage of all workspaces" if workspace is None else f"storage of workspace {workspace}"
        record_audit(connection, operator, f"limit {limit_bytes:,} bytes", subject)

    in_transaction(engine, change)


def charge(connection: Connection, workspace_id: UUID, *, used: int = 0, reserved: int = 0) -> None:
    """Add to both counters, or take away from them. The caller has them locked."""
    values = {"used_bytes": usage.c.used_bytes + used, "reserved_bytes": usage.c.reserved_bytes + reserved}
    if connection.execute(update(usage).where(guards(workspace_id)).values(values)).rowcount != 2:
        raise _no_counters()


def require_room(connection: Connection, workspace_id: UUID, size: int) -> None:
    """See that so many bytes more may be stored. The caller has the counters locked. Raises ScribeError (unavailable)."""
    full = usage.c.limit_bytes - usage.c.used_bytes - usage.c.reserved_bytes < size
    if (scope := connection.scalar(select(usage.c.scope).where(guards(workspace_id), full).limit(1))) is not None:
        (quota,) = read_usage(connection, usage.c.scope == scope)
        who = "all workspaces together" if quota.workspace is None else f"the workspace {quota.workspace}"
        used, pending, reserved = map(in_words, (quota.used_bytes, quota.pending_bytes, quota.reserved_bytes))
        raise ScribeError(
            Category.UNAVAILABLE,
            f"there is no room for {in_words(size)} more: of the {in_words(quota.limit_bytes)} that {who} may hold, {used} are "
            f"used ({pending} of it waits to be removed, see scribe dispatch) and {reserved} reserved; delete items, or see scribe "
            "storage limit",
        )


def reserve(connection: Connection, workspace_id: UUID, batch_id: UUID, sizes: Sequence[int], seconds: float) -> None:
    """Promise a batch room for its files, whose sizes these are by sequence from 1. The caller has the counters locked.

    Raises ScribeError (unavailable).
    """
    require_room(connection, workspace_id, sum(sizes))
    charge(connection, workspace_id, reserved=sum(sizes))
    owner = {"workspace_id": workspace_id, "batch_id": batch_id}
    rows = [
        owner | {"id": uuid_utils.uuid7(), "sequence": sequence, "reserved_bytes": size}
        for sequence, size in enumerate(sizes, start=1)
        if size
    ]
    if rows:
        connection.execute(insert(reservations).values(expires_at=after(seconds)), rows)


def bind(connection: Connection, batch_id: UUID, sequence: int, object_key: str, seconds: float) -> int:
    """Give a file's reservation to an object, and return how many bytes it was for: 0 if there is none any more."""
    bound = connection.execute(
        update(reservations)
        .where(reservations.c.batch_id == batch_id, reservations.c.sequence == sequence, reservations.c.resource_key.is_(None))
        .values(resource_key=object_key, expires_at=after(seconds))
        .returning(reservations.c.reserved_bytes)
    )
    return bound.scalar_one_or_none() or 0


def release(connection: Connection, workspace_id: UUID, which: ColumnElement[bool]) -> int:
    """Take reservations of a workspace back, of which those without an object counted, and return how many it was.

    The caller has the counters locked.
    """
    gone = connection.execute(
        delete(reservations)
        .where(reservations.c.workspace_id == workspace_id, which)
        .returning(reservations.c.reserved_bytes, reservations.c.resource_key)
    ).all()
    unbound = sum(row.reserved_bytes for row in gone if row.resource_key is None)
    if unbound:
        charge(connection, workspace_id, reserved=-unbound)
    return len(gone)


def sweep_reservations(engine: Engine) -> int:
    """Take back reservations whose time is over, some hundreds of each workspace, and return how many it was."""
    expired = reservations.c.expires_at < func.clock_timestamp()

    def sweep(connection: Connection, owner: UUID) -> int:
        lock(connection, {usage: guards(owner)})
        chosen = select(reservations.c.id).where(expired, reservations.c.workspace_id == owner).limit(_SWEPT_AT_ONCE)
        return release(connection, owner, reservations.c.id.in_(chosen.with_for_update(skip_locked=True)))

    owners = select(reservations.c.workspace_id).where(expired).distinct()
    found = in_transaction(engine, lambda connection: connection.scalars(owners).all())
    return sum(in_transaction(engine, partial(sweep, owner=owner)) for owner in found)


def in_words(size: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{size:,} bytes" if abs(size) < _MIB else f"{size / _MIB:,.1f} MiB"


def _no_counters() -> ScribeError:
    return ScribeError(Category.FAILED_PRECONDITION, "the workspace has no quota: scribe storage audit says more")
