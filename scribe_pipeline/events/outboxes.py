"""The outboxes as an operator sees them: work outside the database that waits, is under way, or was given up.

Each dispatcher writes its own rows, and nobody edits them. Nothing is written here, and no token is read.
"""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Text, cast, literal, null, select, union_all

from scribe_pipeline.database.tables import resource_cleanup_outbox, webhook_deliveries, workspaces
from scribe_pipeline.errors import Category, ScribeError

OUTBOX_KINDS = ("webhook", "upload_blob", "triplet_presentation_image", "triplet_presentation_item")
OUTBOX_STATUSES = ("staged", "pending", "processing", "failed", "delivered")

deliveries, cleanup = webhook_deliveries, resource_cleanup_outbox


@dataclass(frozen=True)
class OutboxEntry:
    """A row of an outbox. `key` is what is to be removed, or the event that is to be delivered.

    Only what is to be removed has bytes (those that it has of its workspace's quota) and a time from when nothing may refer to it.
    """

    id: UUID
    kind: str
    key: str
    workspace: str
    status: str
    attempt_count: int
    max_attempts: int
    next_attempt_at: datetime
    lease_owner: str | None
    lease_until: datetime | None
    last_error: str | None
    storage_bytes: int | None
    delete_fenced_at: datetime | None
    created_at: datetime


_COLUMNS = ("status", "attempt_count", "max_attempts", "next_attempt_at", "lease_owner", "lease_until", "last_error", "created_at")
_ROWS = union_all(
    select(
        deliveries.c.id,
        deliveries.c.workspace_id,
        literal("webhook").label("kind"),
        cast(deliveries.c.event_id, Text).label("key"),
        cast(null(), cleanup.c.storage_bytes.type).label("storage_bytes"),
        cast(null(), cleanup.c.delete_fenced_at.type).label("delete_fenced_at"),
        *(deliveries.c[name] for name in _COLUMNS),
    ),
    select(
        cleanup.c.id,
        cleanup.c.workspace_id,
        cleanup.c.kind,
        cleanup.c.resource_key,
        cleanup.c.storage_bytes,
        cleanup.c.delete_fenced_at,
        *(cleanup.c[name] for name in _COLUMNS),
    ),
).subquery("entry")
_ENTRIES = select(
    *(workspaces.c.name if name == "workspace" else _ROWS.c[name] for name in OutboxEntry.__dataclass_fields__)
).join_from(_ROWS, workspaces, workspaces.c.id == _ROWS.c.workspace_id)


def list_outboxes(connection: Connection, *, kind: str | None, status: str | None, limit: int) -> list[OutboxEntry]:
    """Return the rows of all outboxes, or those of one kind or status, newest first."""
    wanted = _ENTRIES.order_by(_ROWS.c.created_at.desc(), _ROWS.c.id.desc()).limit(limit)
    if kind is not None:
        wanted = wanted.where(_ROWS.c.kind == kind)
    if status is not None:
        wanted = wanted.where(_ROWS.c.status == status)
    return [OutboxEntry(*row) for row in connection.execute(wanted)]


def load_outbox_entry(connection: Connection, entry_id: UUID) -> OutboxEntry:
    """Return a row of whichever outbox has it. Raises ScribeError (not_found): what is done is not kept, but for webhooks."""
    row = connection.execute(_ENTRIES.where(_ROWS.c.id == entry_id)).one_or_none()
    if row is None:
        raise ScribeError(Category.NOT_FOUND, f"there is nothing with the id {entry_id} in an outbox; what was removed leaves it")
    return OutboxEntry(*row)
