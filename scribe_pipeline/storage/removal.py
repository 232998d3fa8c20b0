"""Working off the cleanup outbox: claim a row, see that nothing refers to what it names, fence it, remove it, confirm.

No transaction is open while something is removed. An upload is tried until it is gone, each time a little later; other kinds a
bounded number of times, after which the row stays for an operator to see.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Connection, Engine, and_, delete, exists, func, or_, select, update

from scribe_pipeline.database import RELEASED, DatabaseError, Lease, after, held_by, in_transaction, lock, new_lease, taken_by
from scribe_pipeline.database.tables import item_images, page_exports, resource_cleanup_outbox, storage_quota_usage
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage.blobs import BlobStore
from scribe_pipeline.storage.cleanup import UPLOAD, owned_objects
from scribe_pipeline.storage.shared import SharedBlobStore
from scribe_pipeline.workspaces import charge, guards

logger = logging.getLogger(__name__)

outbox = resource_cleanup_outbox

LEASE_SECONDS = 90
_MAX_WAIT_SECONDS = 3600
_MAX_ERROR_BYTES = 128
_AT_ONCE = 10_000

# Removes what a key names; what is not there is no error. Raises ScribeError.
Remover = Callable[[str], None]


@dataclass
class Removals:
    """What came of a pass: rows whose object was removed, or turned out to be referred to, or is to be tried again, or given up.

    `problem` is what was said of the last one that could not be removed.
    """

    removed: int = 0
    referenced: int = 0
    deferred: int = 0
    failed: int = 0
    problem: str | None = None


@dataclass(frozen=True)
class RemovalClaim:
    """A row of the outbox as its worker holds it; the fence is its key, attempt and token."""

    id: UUID
    workspace_id: UUID
    kind: str
    resource_key: str
    attempt_count: int
    max_attempts: int
    lease: Lease

    @property
    def fence(self) -> ColumnElement[bool]:
        """True for the row while this claim holds it."""
        return and_(outbox.c.id == self.id, outbox.c.attempt_count == self.attempt_count, held_by(outbox, self.lease, "processing"))

    @property
    def last(self) -> bool:
        """Whether this attempt is the last one that its kind has."""
        return self.kind != UPLOAD and self.attempt_count >= self.max_attempts


def upload_remover(engine: Engine, store: BlobStore) -> Remover:
    """Return what removes uploads from a store, for one pass.

    It removes nothing from a store that is empty although there are images: a disk may not be mounted. Of one that is there, and
    does not let go of an object, it says that this object is the trouble (transport).
    """
    looked = False

    def remove(key: str) -> None:
        nonlocal looked
        if not looked:
            check_not_bare(engine, store)
        looked = True
        try:
            store.delete(key)
        except ScribeError as error:
            store.check()
            raise ScribeError(Category.TRANSPORT, error.message) from None

    return remove


def check_not_bare(engine: Engine, store: BlobStore) -> None:
    """Raise ScribeError (unavailable) if the store is empty although there are images: it is another one, or not mounted."""
    if next(iter(store.stored()), None) is None and in_transaction(engine, _has_images):
        problem = "the place for scans is empty, and should not be: is SCRIBE_BLOB_URL right, and its disk mounted?"
        raise ScribeError(Category.UNAVAILABLE, problem)


def _has_images(connection: Connection) -> bool:
    return bool(connection.scalar(select(exists().select_from(item_images))))


def drop_stray_copies(engine: Engine, store: BlobStore) -> int:
    """Remove what another machine has removed from the bucket from this one's folder too, and return how many objects.

    An object has its row before it is written anywhere; so one that is found, and then turns out to have none, is nobody's.
    """
    if not isinstance(store, SharedBlobStore):
        return 0
    dropped, copies = 0, store.local.stored()
    while chunk := [copy.key for copy in islice(copies, _AT_ONCE)]:
        owned = in_transaction(engine, partial(owned_objects, object_keys=chunk))
        for key in chunk:
            if key not in owned:
                store.local.delete(key)
                dropped += 1
    return dropped


def remove_due(
    engine: Engine,
    removers: Mapping[str, Remover],
    stopped: Callable[[], bool] = lambda: False,
) -> Removals:
    """Remove all that is due of the kinds that have a remover, and say what came of it.

    A kind whose remover does not answer (unavailable) is left alone for the rest of the pass, and a row that the database does
    not let go waits like one that cannot be removed. Raises DatabaseError for a database that does not answer.
    """
    kinds = set(removers)
    done = Removals(failed=_give_up_vanished(engine))
    while kinds and not stopped():
        claim = claim_removal(engine, kinds, LEASE_SECONDS)
        if claim is None:
            break
        try:
            if claim.kind == UPLOAD and not fence_removal(engine, claim):
                done.referenced += 1
                continue
            removers[claim.kind](claim.resource_key)
            confirm_removal(engine, claim)
            done.removed += 1
        except ScribeError as error:
            if error.category is Category.UNAVAILABLE:
                if isinstance(error, DatabaseError):
                    raise
                kinds.discard(claim.kind)
            _put_off(engine, claim, error, done)
    return done


def _put_off(engine: Engine, claim: RemovalClaim, error: ScribeError, done: Removals) -> None:
    try:
        if error.category is Category.LEASE_LOST:
            raise error
        defer_removal(engine, claim, error.message)
    except ScribeError as lost:
        if lost.category is not Category.LEASE_LOST:
            raise
        logger.warning("the removal of %s took too long; somebody else sees to it", claim.resource_key)
        return
    done.problem = error.message
    done.failed += claim.last
    done.deferred += not claim.last


def claim_removal(engine: Engine, kinds: set[str], lease_seconds: float) -> RemovalClaim | None:
    """Take the row of these kinds that has been due for longest: waiting, or held by a worker whose lease has run out."""

    def claim(connection: Connection) -> RemovalClaim | None:
        waiting = and_(outbox.c.status.in_(("staged", "pending")), outbox.c.next_attempt_at <= func.clock_timestamp())
        row = connection.execute(
            select(outbox)
            .where(outbox.c.kind.in_(kinds), or_(waiting, and_(_vanished(), ~_used_up())))
            .order_by(outbox.c.next_attempt_at, outbox.c.id)
            .limit(1)
            .with_for_update(skip_locked=True)
        ).one_or_none()
        if row is None:
            return None
        this = and_(outbox.c.id == row.id, outbox.c.attempt_count == row.attempt_count, outbox.c.status == row.status)
        number, lease = row.attempt_count + 1, new_lease(lease_seconds)
        _write(connection, this, {"status": "processing", "attempt_count": number} | taken_by(lease))
        return RemovalClaim(row.id, row.workspace_id, row.kind, row.resource_key, number, row.max_attempts, lease)

    return in_transaction(engine, claim)


def _give_up_vanished(engine: Engine) -> int:
    """Fail the rows of bounded kinds whose worker vanished at the last attempt."""
    failed = RELEASED | {"status": "failed", "last_error": "its worker vanished at the last attempt"}
    statement = update(outbox).where(_vanished(), _used_up()).values(**failed)
    return in_transaction(engine, lambda connection: connection.execute(statement).rowcount)


def fence_removal(engine: Engine, claim: RemovalClaim) -> bool:
    """Say that the claim's object is about to be removed: from now on nothing can refer to it. False if something does.

    An object that is referred to is its owner's: the row goes, and no bytes are given back. Raises ScribeError (lease_lost).
    """

    def fence(connection: Connection) -> bool:
        named = item_images.c.object_key == claim.resource_key
        images = lock(connection, {storage_quota_usage: guards(claim.workspace_id), item_images: named})[item_images]
        if images or connection.scalar(select(exists().where(page_exports.c.object_key == claim.resource_key))):
            _expect_one(connection.execute(delete(outbox).where(claim.fence)).rowcount)
            return False
        _write(connection, claim.fence, {"delete_fenced_at": func.coalesce(outbox.c.delete_fenced_at, func.clock_timestamp())})
        return True

    return in_transaction(engine, fence)


def confirm_removal(engine: Engine, claim: RemovalClaim) -> None:
    """Forget what is removed, and give its bytes back. Raises ScribeError (lease_lost)."""

    def confirm(connection: Connection) -> None:
        lock(connection, {storage_quota_usage: guards(claim.workspace_id)})
        fenced = or_(outbox.c.kind != UPLOAD, outbox.c.delete_fenced_at.is_not(None))
        gone = connection.execute(delete(outbox).where(claim.fence, fenced).returning(outbox.c.storage_bytes)).scalars().all()
        _expect_one(len(gone))
        charge(connection, claim.workspace_id, used=-gone[0])

    in_transaction(engine, confirm)


def defer_removal(engine: Engine, claim: RemovalClaim, problem: str) -> None:
    """Try again later: after one second, then two, four and so on up to an hour; or give up, if the kind has no attempt left.

    Raises ScribeError (lease_lost).
    """
    wait = min(_MAX_WAIT_SECONDS, 2 ** min(claim.attempt_count - 1, 12))
    said = problem.encode()[:_MAX_ERROR_BYTES].decode(errors="ignore")
    status = "failed" if claim.last else "pending"
    values = RELEASED | {"status": status, "next_attempt_at": after(wait), "last_error": said}
    in_transaction(engine, lambda connection: _write(connection, claim.fence, values))


def _vanished() -> ColumnElement[bool]:
    return and_(outbox.c.status == "processing", outbox.c.lease_until < func.clock_timestamp())


def _used_up() -> ColumnElement[bool]:
    return and_(outbox.c.kind != UPLOAD, outbox.c.attempt_count >= outbox.c.max_attempts)


def _write(connection: Connection, fence: ColumnElement[bool], values: Mapping[str, Any]) -> None:
    _expect_one(connection.execute(update(outbox).where(fence).values(**values)).rowcount)


def _expect_one(rows: int) -> None:
    if rows != 1:
        raise ScribeError(Category.LEASE_LOST, "the removal is no longer held by this worker")
