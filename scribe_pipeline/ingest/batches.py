"""Statements on ingest batches: what was asked for, what is left to do, whether it is over. Work on a file is `claims`'s."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import uuid_utils.compat as uuid_utils
from sqlalchemy import ColumnElement, Connection, Engine, and_, bindparam, exists, func, insert, literal, or_, select, update
from sqlalchemy.dialects.postgresql import insert as upsert

from scribe_pipeline.contexts import ContextSnapshot, Metadata, check_metadata, find_context
from scribe_pipeline.database import due, dump_json, in_transaction, lock
from scribe_pipeline.database.tables import (
    contexts,
    ingest_batch_files,
    ingest_batches,
    items,
    storage_quota_usage,
    transcription_jobs,
    workspaces,
)
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.ingest.collect import Collection
from scribe_pipeline.jobs import ACTIVE, NOW
from scribe_pipeline.workspaces import guards, reserve, workspace_id

batches, files, jobs = ingest_batches, ingest_batch_files, transcription_jobs

OPEN_BATCH = ("pending", "running")
OPEN_FILE = ("pending", "processing")

_BATCHES = select(
    batches.c.id, workspaces.c.name, batches.c.status, batches.c.dispatch_generation, batches.c.context_snapshot
).join(workspaces, workspaces.c.id == batches.c.workspace_id)


@dataclass(frozen=True)
class Batch:
    """An ingest request as a row: its workspace's name, its status, and how many runs were asked for so far."""

    id: UUID
    workspace: str
    status: str
    dispatch_generation: int
    context_snapshot: str

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.status not in OPEN_BATCH


@dataclass(frozen=True)
class BatchListing:
    """A batch as a list shows it."""

    id: UUID
    item: str
    context: str
    files: int
    status: str
    created_at: datetime


def request_batch(
    engine: Engine,
    collection: Collection,
    *,
    workspace: str,
    context: str | None,
    max_attempts: int,
    reservation_seconds: float,
    metadata: Metadata | None = None,
    again: bool = False,
    check: Callable[[ContextSnapshot], None] | None = None,
) -> Batch:
    """Return the batch for these files in this workspace and context: the one there is, or a new one with its item.

    Without a context, the workspace's rules choose it by the metadata, which become the item's. The same request is recognised
    by the files' names and bytes and the metadata; `again` makes a new batch all the same. A new one has room reserved for all
    its files. `check` looks at the context of a batch that is new or not over; if it raises, nothing is made or changed. It is
    called within the transaction: it must be brief, and ask nobody.

    Raises ScribeError: invalid_argument for an unknown workspace or context, or metadata that are not flat,
    unavailable if the workspace, or all together, may not store so much.
    """
    known = dict(check_metadata(metadata or {}))

    def request(connection: Connection) -> Batch:
        owner = workspace_id(connection, workspace)
        snapshot = find_context(connection, owner, context, known)
        request_hash = _request_hash(owner, snapshot, collection, known)
        same = batches.c.request_hash == request_hash
        latest = connection.execute(
            select(batches.c.id, batches.c.again)
            .where(same, batches.c.status != "canceled")
            .order_by(batches.c.again.desc())
            .limit(1)
        ).one_or_none()
        if latest is not None and not again:
            there = load_batch(connection, latest.id)
            if check is not None and not there.finished:
                check(ContextSnapshot.from_text(there.context_snapshot))
            _take_new_places(connection, latest.id, collection)
            return there
        if check is not None:
            check(snapshot)
        number = 0 if latest is None else latest.again + 1
        lock(connection, {storage_quota_usage: guards(owner)})
        created = _insert_batch(connection, owner, snapshot, collection, known, request_hash, number, max_attempts)
        if created is None:  # the same request was made elsewhere in the meantime
            others = select(batches.c.id).where(same, batches.c.again == number, batches.c.status != "canceled")
            created = connection.execute(others).scalar_one()
        else:
            reserve(connection, owner, created, [file.size for file in collection.files], reservation_seconds)
        return load_batch(connection, created)

    return in_transaction(engine, request)


def _insert_batch(
    connection: Connection,
    owner: UUID,
    snapshot: ContextSnapshot,
    collection: Collection,
    metadata: Metadata,
    request_hash: str,
    again: int,
    max_attempts: int,
) -> UUID | None:
    batch_id, item_id = uuid_utils.uuid7(), uuid_utils.uuid7()
    created: UUID | None = connection.execute(
        upsert(batches)
        .values(
            id=batch_id,
            workspace_id=owner,
            item_id=item_id,
            context_id=snapshot.context_id,
            context_snapshot=snapshot.to_text(),
            request_hash=request_hash,
            again=again,
        )
        .on_conflict_do_nothing()
        .returning(batches.c.id)
    ).scalar_one_or_none()
    if created is None:
        return None
    item = {"id": item_id, "workspace_id": owner, "name": collection.name, "source_type": "upload", "metadata": metadata}
    connection.execute(insert(items).values(item))
    connection.execute(
        insert(files),
        [
            {
                "batch_id": batch_id,
                "sequence": sequence,
                "frame": 1,
                "workspace_id": owner,
                "filename": file.name,
                "source_uri": file.uri,
                "size_bytes": file.size,
                "content_sha256": file.sha256,
                "max_attempts": max_attempts,
            }
            for sequence, file in enumerate(collection.files, start=1)
        ],
    )
    return created


def _take_new_places(connection: Connection, batch_id: UUID, collection: Collection) -> None:
    """The same files may lie elsewhere by now; those that are not stored yet are read from where they were named last."""
    statement = update(files).where(
        files.c.batch_id == batch_id,
        files.c.sequence == bindparam("number"),
        files.c.item_image_id.is_(None),
        or_(files.c.status == "pending", files.c.status == "processing"),
        files.c.source_uri != bindparam("place"),
    )
    places = [{"number": sequence, "place": file.uri} for sequence, file in enumerate(collection.files, start=1)]
    connection.execute(statement.values(source_uri=bindparam("place")), places)


def _request_hash(owner: UUID, snapshot: ContextSnapshot, collection: Collection, metadata: Metadata) -> str:
    declared = [[file.name, file.size, file.sha256] for file in collection.files]
    # without metadata it is what it was before there were any
    known = [dict(sorted(metadata.items()))] if metadata else []
    request = dump_json([str(owner), str(snapshot.context_id), declared, *known])
    return hashlib.sha256(request.encode("utf-8", "surrogateescape")).hexdigest()


def load_batch(connection: Connection, batch_id: UUID) -> Batch:
    """Return the batch. Raises ScribeError (not_found)."""
    row = connection.execute(_BATCHES.where(batches.c.id == batch_id)).one_or_none()
    if row is None:
        raise ScribeError(Category.NOT_FOUND, f"there is no batch {batch_id}")
    return Batch(*row)


def list_batches(connection: Connection) -> list[BatchListing]:
    """Return all batches, newest first."""
    rows = connection.execute(
        select(
            batches.c.id,
            items.c.name,
            contexts.c.name,
            func.count(files.c.sequence),
            batches.c.status,
            batches.c.created_at,
        )
        .join(items, items.c.id == batches.c.item_id)
        .join(contexts, contexts.c.id == batches.c.context_id)
        .join(files, and_(files.c.batch_id == batches.c.id, files.c.frame == 1))
        .group_by(batches.c.id, items.c.name, contexts.c.name)
        .order_by(batches.c.created_at.desc(), batches.c.id)
    )
    return [BatchListing(*row) for row in rows]


def open_batch(engine: Engine, batch_id: UUID) -> Batch:
    """Return the batch, set running if nobody has begun it. Raises ScribeError (not_found)."""

    def begin(connection: Connection) -> Batch:
        connection.execute(update(batches).where(batches.c.id == batch_id, batches.c.status == "pending").values(status="running"))
        return load_batch(connection, batch_id)

    return in_transaction(engine, begin)


def settle_batch(engine: Engine, batch_id: UUID, expected_generation: int) -> Batch:
    """End the batch if all its files and jobs have ended; otherwise ask for another run, unless one has been asked for.

    It is `completed` if any page came of it, `failed` if none did. Raises ScribeError (not_found) if its item was deleted.
    """

    def settle(connection: Connection) -> Batch:
        connection.execute(select(batches).where(batches.c.id == batch_id).with_for_update())
        batch = load_batch(connection, batch_id)
        values: dict[str, Any] = {}
        if not connection.scalar(select(_open_work()).where(batches.c.id == batch_id)):
            succeeded = exists().where(jobs.c.batch_id == batch_id, jobs.c.status == "completed")
            status = "completed" if connection.scalar(select(succeeded)) else "failed"
            values = {"status": status, "finished_at": func.clock_timestamp()}
        elif batch.dispatch_generation == expected_generation:
            values = {"dispatch_generation": expected_generation + 1}
        if values:
            connection.execute(update(batches).where(batches.c.id == batch_id, batches.c.status.in_(OPEN_BATCH)).values(**values))
        return load_batch(connection, batch_id)

    return in_transaction(engine, settle)


def _open_work() -> ColumnElement[bool]:
    """True for a batch with a file or a job that has not ended."""
    open_file = exists().where(files.c.batch_id == batches.c.id, files.c.status.in_(OPEN_FILE))
    open_job = exists().where(jobs.c.batch_id == batches.c.id, jobs.c.status.in_(ACTIVE))
    return or_(open_file, open_job)


def raise_generation(engine: Engine, batch_id: UUID, expected: int) -> bool:
    """Ask for another run on the batch, unless somebody has; False if so."""
    asked = batches.c.dispatch_generation == expected
    statement = update(batches).where(batches.c.id == batch_id, asked, batches.c.status.in_(OPEN_BATCH))
    raised = statement.values(dispatch_generation=expected + 1)
    return in_transaction(engine, lambda connection: connection.execute(raised).rowcount) == 1


def due_batches(connection: Connection, limit: int) -> list[Batch]:
    """Return open batches, oldest first, that have something to do now, be it only to be settled."""
    due_file = exists().where(files.c.batch_id == batches.c.id, due(files, "pending", "processing"))
    due_job = exists().where(jobs.c.batch_id == batches.c.id, jobs.c.due_at <= NOW)
    rows = connection.execute(
        _BATCHES.where(batches.c.status.in_(OPEN_BATCH), or_(due_file, due_job, ~_open_work()))
        .order_by(batches.c.created_at, batches.c.id)
        .limit(limit)
    )
    return [Batch(*row) for row in rows]


def seconds_until_due(connection: Connection, batch_id: UUID) -> float | None:
    """Return how long until something of the batch is due (0 if it is now), or None if nothing is open."""
    waiting = [
        select(func.coalesce(table.c.lease_until, table.c.retry_after, literal(None, table.c.retry_after.type)).label("at")).where(
            table.c.batch_id == batch_id, table.c.status.in_(states)
        )
        for table, states in ((files, OPEN_FILE), (jobs, ACTIVE))
    ]
    moments: list[datetime | None] = [moment for statement in waiting for moment in connection.scalars(statement)]
    if not moments:
        return None
    if None in moments:
        return 0.0
    now: datetime = connection.execute(select(func.clock_timestamp())).scalar_one()
    return max(0.0, min((moment - now).total_seconds() for moment in moments if moment is not None))
