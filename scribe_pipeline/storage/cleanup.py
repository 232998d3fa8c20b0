"""The cleanup outbox: objects whose removal is wanted. Handing one over belongs to the transaction that gives it up."""

from uuid import UUID

import uuid_utils.compat as uuid_utils
from sqlalchemy import Connection, func
from sqlalchemy.dialects.postgresql import insert

from scribe_pipeline.database.tables import resource_cleanup_outbox


def hand_over_blob(connection: Connection, workspace_id: UUID, object_key: str, size: int, after_seconds: float = 0) -> None:
    """Ask for the removal of an object of `size` bytes, `after_seconds` from now; it may not have been written at all."""
    connection.execute(
        insert(resource_cleanup_outbox)
        .values(
            id=uuid_utils.uuid7(),
            workspace_id=workspace_id,
            kind="upload_blob",
            resource_key=object_key,
            storage_bytes=size,
            next_attempt_at=func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, after_seconds),
        )
        .on_conflict_do_nothing()
    )
