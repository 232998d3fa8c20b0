"""Statements on the files of a batch as work: who works on a file, and how a worker's claim on it ends."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Engine, and_, insert, select, update

from scribe_pipeline.database import RELEASED, Lease, after, due, held_by, in_transaction, lock, new_lease, renew, taken_by
from scribe_pipeline.database.tables import ingest_batch_files, ingest_batches, storage_quota_usage, storage_reservations
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.ingest.batches import OPEN_BATCH, OPEN_FILE
from scribe_pipeline.ingest.names import page_in_words, page_label
from scribe_pipeline.ingest.validation import FurtherPage
from scribe_pipeline.storage import SETTLING_SECONDS, Blob, give_up_blobs, stage_upload
from scribe_pipeline.workspaces import guards, release

batches, files = ingest_batches, ingest_batch_files

_RETRY_SECONDS, _PUT_OFF_SECONDS = 5, 60
_MAX_ERROR = 1024


@dataclass(frozen=True)
class FileClaim:
    """A batch file, or one page of it, as its worker holds it; the fence is its key, attempt and token."""

    batch_id: UUID
    sequence: int
    frame: int
    workspace_id: UUID
    filename: str
    source_uri: str
    size_bytes: int
    content_sha256: str
    attempt_count: int
    max_attempts: int
    object_key: str | None
    item_image_id: UUID | None
    item_id: UUID
    context_snapshot: str
    lease: Lease

    @property
    def fence(self) -> ColumnElement[bool]:
        """True for the file's row while this claim holds it."""
        return and_(self._key, files.c.attempt_count == self.attempt_count, held_by(files, self.lease, "processing"))

    @property
    def label(self) -> str:
        """What tables call the page."""
        return page_label(self.filename, self.frame)

    @property
    def claim_name(self) -> str:
        """What temporaries written under this file's claims are called by."""
        return claim_name(self.batch_id, self.sequence, self.frame)

    @property
    def _key(self) -> ColumnElement[bool]:
        return and_(files.c.batch_id == self.batch_id, files.c.sequence == self.sequence, files.c.frame == self.frame)


@dataclass(frozen=True)
class GivenUp:
    """A file whose last worker vanished: why it was given up, and what that worker may have left in the store."""

    label: str
    message: str
    claim_name: str
    object_key: str | None


def claim_name(batch_id: UUID, sequence: int, frame: int) -> str:
    """Return what temporaries written under a file's claims are called by."""
    return f"{batch_id}-{sequence}-{frame}"


def claim_file(engine: Engine, batch_id: UUID, lease_seconds: float, *, stored: bool) -> FileClaim | GivenUp | None:
    """Take the batch's next file that is due: one whose scan is `stored` already, or one whose scan is not.

    A file whose worker vanished at its last attempt fails with `attempts_exhausted` and is returned as given up.
    """

    def claim(connection: Connection) -> FileClaim | GivenUp | None:
        lease = new_lease(lease_seconds)
        row = connection.execute(
            select(files, batches.c.item_id, batches.c.context_snapshot)
            .join(batches, batches.c.id == files.c.batch_id)
            .where(
                files.c.batch_id == batch_id,
                batches.c.status.in_(OPEN_BATCH),
                files.c.item_image_id.is_not(None) if stored else files.c.item_image_id.is_(None),
                due(files, "pending", "processing"),
            )
            .order_by(files.c.sequence, files.c.frame)
            .limit(1)
            .with_for_update(of=files, skip_locked=True)
        ).one_or_none()
        if row is None:
            return None
        this = and_(
            files.c.batch_id == batch_id,
            files.c.sequence == row.sequence,
            files.c.frame == row.frame,
            files.c.attempt_count == row.attempt_count,
            files.c.status.in_(OPEN_FILE),
        )
        if row.attempt_count >= row.max_attempts:
            name = row.filename if row.frame == 1 else page_in_words(row.filename, row.frame)
            reason = without_result(f"{name} was given up: its worker vanished {row.attempt_count} times", row)
            _write(connection, this, _failed(Category.ATTEMPTS_EXHAUSTED, reason))
            return GivenUp(
                page_label(row.filename, row.frame), reason, claim_name(batch_id, row.sequence, row.frame), row.object_key
            )
        number = row.attempt_count + 1
        _write(connection, this, {"status": "processing", "attempt_count": number, "retry_after": None} | taken_by(lease))
        columns = (name for name in FileClaim.__dataclass_fields__ if name != "lease")
        values = {name: getattr(row, name) for name in columns}
        return FileClaim(**values | {"attempt_count": number}, lease=lease)

    return in_transaction(engine, claim)


def renew_file(engine: Engine, claim: FileClaim) -> bool:
    """Move the lease's deadline. False if the claim is lost or the lease has run out."""
    return in_transaction(engine, lambda connection: renew(connection, files, claim.lease, claim.fence))


def stage_object(engine: Engine, claim: FileClaim, object_key: str, seconds: float) -> FileClaim:
    """Write down which object this claim is about to store, give it room for `seconds`, and return the claim with it.

    The object of the claim before stays staged: its worker may store it even now. Raises ScribeError: lease_lost, unavailable
    if there is no room.
    """

    def stage(connection: Connection) -> None:
        lock(connection, {storage_quota_usage: guards(claim.workspace_id)})
        write_file(connection, claim, {"object_key": object_key})
        blob = Blob(claim.workspace_id, object_key, claim.size_bytes)
        stage_upload(connection, blob, claim.batch_id, claim.sequence, seconds)

    in_transaction(engine, stage)
    return replace(claim, object_key=object_key)


def write_file(connection: Connection, claim: FileClaim, values: Mapping[str, Any]) -> None:
    """Change the claim's row. Raises ScribeError (lease_lost), so that the transaction it stands in comes to nothing."""
    _write(connection, claim.fence, values)


def add_pages(connection: Connection, claim: FileClaim, further: Sequence[FurtherPage]) -> None:
    """Add a row for each further page of the claim's file. It belongs to the transaction that ends the claim."""
    rows = [
        {
            "batch_id": claim.batch_id,
            "sequence": claim.sequence,
            "frame": frame,
            "workspace_id": claim.workspace_id,
            "filename": claim.filename,
            "source_uri": claim.source_uri,
            "size_bytes": page.size,
            "content_sha256": page.sha256,
            "max_attempts": claim.max_attempts,
        }
        for frame, page in enumerate(further, start=2)
    ]
    if rows:
        connection.execute(insert(files), rows)


def end_file_attempt(
    engine: Engine, claim: FileClaim, category: Category, message: str, further: Sequence[FurtherPage] = ()
) -> bool:
    """Give the file back for a retry if one can help and is left, or fail it and add its further pages; True if it failed.

    What the claim may have stored is to be removed, and what was reserved for a file that failed is free again.

    Raises ScribeError (lease_lost).
    """

    def end(connection: Connection) -> bool:
        lock(connection, {storage_quota_usage: guards(claim.workspace_id)})
        failed = False
        if category is Category.INTERRUPTED:
            # whoever stops a run has not tried the file
            write_file(connection, claim, RELEASED | {"status": "pending", "attempt_count": claim.attempt_count - 1})
        elif category.retryable and claim.attempt_count < claim.max_attempts:
            write_file(connection, claim, RELEASED | {"status": "pending", "retry_after": after(_RETRY_SECONDS)})
        else:
            write_file(connection, claim, _failed(category, message))
            add_pages(connection, claim, further)
            reserved = storage_reservations.c
            release(connection, claim.workspace_id, and_(reserved.batch_id == claim.batch_id, reserved.sequence == claim.sequence))
            failed = True
        if claim.object_key is not None and claim.item_image_id is None:
            # where a retry can help, nobody knows what became of the write
            give_up_blobs(connection, [claim.object_key], SETTLING_SECONDS if category.retryable else 0)
        return failed

    return in_transaction(engine, end)


def put_off_file(engine: Engine, claim: FileClaim) -> None:
    """Give back a file that nobody could try, to be claimed again in a minute. Raises ScribeError (lease_lost)."""
    untried = {"status": "pending", "attempt_count": claim.attempt_count - 1, "retry_after": after(_PUT_OFF_SECONDS)}
    in_transaction(engine, lambda connection: write_file(connection, claim, RELEASED | untried))


def without_result(message: str, file: Any) -> str:
    """Return why a file (a claim, or its row) came to no result; of a TIFF, that nobody knows what is behind its first page."""
    if file.frame > 1 or file.item_image_id is not None or not (file.object_key or "").endswith(".tiff"):
        return message
    return f"{message}; its other pages, if it has any, were not looked at"


def _failed(category: Category, message: str) -> dict[str, object]:
    return RELEASED | {"status": "failed", "error_category": category.value, "error": message[:_MAX_ERROR]}


def _write(connection: Connection, fence: ColumnElement[bool], values: Mapping[str, Any]) -> None:
    if connection.execute(update(files).where(fence).values(**values)).rowcount != 1:
        raise ScribeError(Category.LEASE_LOST, "the file is no longer held by this worker")
