"""The cleanup outbox as those see it who store objects or give them up; removing them is `removal`'s.

An object has an owner at any moment: a staged row from before its first byte, then its image (or export), then a row that waits
for its removal. Each step belongs to the transaction that changes what owns it; so a crash leaves nothing to be repaired.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

import uuid_utils.compat as uuid_utils
from sqlalchemy import ColumnElement, Connection, and_, delete, func, insert, null, select, union_all, update
from sqlalchemy.dialects.postgresql import insert as upsert

from scribe_pipeline.database import after, one_of
from scribe_pipeline.database.tables import item_images, page_exports, resource_cleanup_outbox, storage_reservations
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.workspaces import bind, charge, release, require_room

images, exports, outbox = item_images, page_exports, resource_cleanup_outbox

UPLOAD = "upload_blob"
# Within this time a write whose answer never came has come to something or to nothing.
SETTLING_SECONDS = 60


@dataclass(frozen=True)
class Blob:
    """An object and the bytes that it has of its workspace's quota; an export, which can be made again, has none."""

    workspace_id: UUID
    object_key: str
    size: int


def stage_blobs(connection: Connection, blobs: Sequence[Blob], seconds: float) -> None:
    """Announce objects that are about to be written. Unless they are taken back, they are removed after so many seconds."""
    if blobs:
        connection.execute(insert(outbox).values(kind=UPLOAD, status="staged", next_attempt_at=after(seconds)), _rows(blobs))


def take_back_blobs(connection: Connection, object_keys: Sequence[str]) -> set[str]:
    """Withdraw objects that were staged, and return those of them that nobody has begun to remove: they may be referred to."""
    return set(connection.execute(delete(outbox).where(_staged(object_keys)).returning(outbox.c.resource_key)).scalars())


def stage_upload(connection: Connection, blob: Blob, batch_id: UUID, sequence: int, seconds: float) -> None:
    """Give an object about to be written the room that is reserved for its file, or room of its own if there is none any more.

    The caller has the workspace's counters locked. Raises ScribeError (unavailable) if there is no room.
    """
    reserved = bind(connection, batch_id, sequence, blob.object_key, seconds)
    if reserved < blob.size:
        require_room(connection, blob.workspace_id, blob.size - reserved)
    charge(connection, blob.workspace_id, used=blob.size, reserved=-reserved)
    stage_blobs(connection, [blob], seconds)


def adopt_upload(connection: Connection, workspace_id: UUID, object_key: str) -> None:
    """Leave a staged object to the image that refers to it by now. The caller has the workspace's counters locked.

    Raises ScribeError (timeout) if its removal has been asked for.
    """
    release(connection, workspace_id, storage_reservations.c.resource_key == object_key)
    if not take_back_blobs(connection, [object_key]):
        raise ScribeError(Category.TIMEOUT, "the scan was stored too late: its removal has begun")


def give_up_blobs(connection: Connection, object_keys: Sequence[str], after_seconds: float) -> None:
    """Have staged objects that will come to nothing removed sooner: `after_seconds` from now."""
    sooner = func.least(outbox.c.next_attempt_at, after(after_seconds))
    connection.execute(update(outbox).where(_staged(object_keys)).values(status="pending", next_attempt_at=sooner))


def hand_over_blobs(connection: Connection, blobs: Sequence[Blob]) -> None:
    """Ask for the removal of objects that an image or an export has been the owner of until now.

    One whose removal has been asked for already has its bytes counted all the same.
    """
    if blobs:
        wanted = upsert(outbox).values(kind=UPLOAD)
        larger = func.greatest(outbox.c.storage_bytes, wanted.excluded.storage_bytes)
        connection.execute(
            wanted.on_conflict_do_update(index_elements=[outbox.c.kind, outbox.c.resource_key], set_={"storage_bytes": larger}),
            _rows(blobs),
        )


def hand_over_projections(connection: Connection, workspace_id: UUID, item_id: UUID, image_ids: Sequence[UUID]) -> None:
    """Ask for the removal of what other servers show of an item and of its images.

    It begins a little later, so that what is on its way there does not arrive after it.
    """
    named = [("triplet_presentation_item", item_id), *(("triplet_presentation_image", image_id) for image_id in image_ids)]
    rows = [{"id": uuid_utils.uuid7(), "workspace_id": workspace_id, "kind": kind, "resource_key": str(key)} for kind, key in named]
    connection.execute(upsert(outbox).values(next_attempt_at=after(SETTLING_SECONDS)).on_conflict_do_nothing(), rows)


def owned_objects(connection: Connection, object_keys: Sequence[str]) -> dict[str, int | None]:
    """Return those of the keys that a row refers to, with the size that it says they have: None for what is to be removed."""
    # in one statement, as an object may pass from one owner to another between two
    owners = union_all(
        select(images.c.object_key, images.c.storage_bytes).where(one_of(images.c.object_key, object_keys)),
        select(exports.c.object_key, exports.c.size_bytes).where(one_of(exports.c.object_key, object_keys)),
        select(outbox.c.resource_key, null()).where(outbox.c.kind == UPLOAD, one_of(outbox.c.resource_key, object_keys)),
    )
    return dict(connection.execute(owners).tuples().all())


def _staged(object_keys: Sequence[str]) -> ColumnElement[bool]:
    return and_(outbox.c.kind == UPLOAD, one_of(outbox.c.resource_key, object_keys), outbox.c.status == "staged")


def _rows(blobs: Sequence[Blob]) -> list[dict[str, object]]:
    return [
        {
            "id": uuid_utils.uuid7(),
            "workspace_id": blob.workspace_id,
            "resource_key": blob.object_key,
            "storage_bytes": blob.size,
        }
        for blob in blobs
    ]
