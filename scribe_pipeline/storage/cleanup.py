"""The cleanup outbox: objects whose removal is wanted. Handing one over belongs to the transaction that gives it up."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import uuid_utils.compat as uuid_utils
from sqlalchemy import Connection, func
from sqlalchemy.dialects.postgresql import insert

from scribe_pipeline.database.tables import resource_cleanup_outbox


@dataclass(frozen=True)
class Blob:
    """An object to be removed, and how many bytes it is believed to have; it may not have been written at all."""

    workspace_id: UUID
    object_key: str
    size: int


def hand_over_blobs(connection: Connection, blobs: Sequence[Blob], after_seconds: float = 0) -> None:
    """Ask for the removal of objects, `after_seconds` from now."""
    if not blobs:
        return
    connection.execute(
        insert(resource_cleanup_outbox)
        .values(
            kind="upload_blob",
            next_attempt_at=func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, after_seconds),
        )
        .on_conflict_do_nothing(),
        [
            {
                "id": uuid_utils.uuid7(),
                "workspace_id": blob.workspace_id,
                "resource_key": blob.object_key,
                "storage_bytes": blob.size,
            }
            for blob in blobs
        ],
    )
