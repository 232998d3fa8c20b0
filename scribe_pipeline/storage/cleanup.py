"""The cleanup outbox: objects whose removal is wanted. Handing one over belongs to the transaction that gives it up."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import uuid_utils.compat as uuid_utils
from sqlalchemy import Connection, delete, func
from sqlalchemy.dialects.postgresql import insert

from scribe_pipeline.database import one_of
from scribe_pipeline.database.tables import resource_cleanup_outbox

_BLOB = "upload_blob"


@dataclass(frozen=True)
class Blob:
    """An object to be removed, and how many bytes it is believed to have; it may not have been written at all."""

    workspace_id: UUID
    object_key: str
    size: int


def hand_over_blobs(connection: Connection, blobs: Sequence[Blob], after_seconds: float = 0, *, staged: bool = False) -> None:
    """Ask for the removal of objects, `after_seconds` from now.

    Whoever is about to write some hands them over as `staged`, and takes them back once a row refers to them; if he does not
    come to that, they are removed as any others.
    """
    if not blobs:
        return
    connection.execute(
        insert(resource_cleanup_outbox)
        .values(
            kind=_BLOB,
            status="staged" if staged else "pending",
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


def take_back_blobs(connection: Connection, object_keys: Sequence[str]) -> set[str]:
    """Withdraw objects that were staged, and return those of them that nobody has begun to remove: they may be referred to."""
    outbox = resource_cleanup_outbox.c
    return set(
        connection.execute(
            delete(resource_cleanup_outbox)
            .where(outbox.kind == _BLOB, one_of(outbox.resource_key, object_keys), outbox.status == "staged")
            .returning(outbox.resource_key)
        ).scalars()
    )
