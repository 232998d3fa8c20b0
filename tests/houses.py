"""A database with a blob store, and shortcuts that bring rows to where a test begins."""

import hashlib
import io
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import uuid_utils.compat as uuid_utils
from PIL import Image as Picture
from sqlalchemy import Connection, Engine, Select, delete, event, insert, text

from scribe_pipeline.contexts import Metadata, find_context
from scribe_pipeline.database import in_transaction
from scribe_pipeline.database.tables import ingest_batch_files, ingest_batches, item_images, items
from scribe_pipeline.engines import EnginePool, ImageLimits, LineShape, LineText, ReadingOptions, Ticket
from scribe_pipeline.engines.images import Pixels
from scribe_pipeline.errors import Category
from scribe_pipeline.ingest import (
    Batch,
    Collection,
    IngestSettings,
    request_batch,
)
from scribe_pipeline.ingest.collect import DeclaredFile
from scribe_pipeline.jobs import (
    JobClaim,
    claim_jobs,
    complete_job,
    create_job,
    insert_job,
)
from scribe_pipeline.pages import (
    Author,
    Image,
    build_page,
    canvas_uri,
    create_page,
    fill_lines,
    insert_image,
    load_head,
    load_image,
    read_lines,
    save_page,
)
from scribe_pipeline.storage import Blob, new_object_key, open_store, stage_blobs
from scribe_pipeline.workspaces import charge, workspace_id

PUBLIC_URL = "http://localhost:8000/presentation/v3"
LIMITS = ImageLimits(max_bytes=10_000_000, max_pixels=10_000_000, max_side=5_000, max_pages=20)


def line_shape(top: int, left: int = 10, right: int = 390) -> LineShape:
    """A line 30 pixels high."""
    corners = ((left, top), (right, top), (right, top + 30), (left, top + 30))
    return LineShape(((left, top + 22), (right, top + 22)), corners)


EMPTIED = (
    "transcription_jobs", "transcription_job_attempts", "annotation_pages", "annotation_page_revisions", "annotations", "ocr_runs",
    "current_ocr_runs", "event_outbox", "webhook_deliveries", "ingest_batches", "ingest_batch_files", "item_images", "items",
    "resource_cleanup_outbox", "operator_audit", "page_exports", "storage_reservations",
    "flyer_tagging_jobs", "files", "outcome_activations", "context_selection_rules",
)  # fmt: skip
THREE_LINES = (line_shape(20), line_shape(70), line_shape(120))


@cache
def png(width: int = 400, height: int = 300, colour: str = "white") -> bytes:
    """A picture without anything on it."""
    out = io.BytesIO()
    Picture.new("RGB", (width, height), colour).save(out, "PNG")
    return out.getvalue()


class InlinePool(EnginePool):
    """Runs a task at once and in this process, so that a test decides what engines say and when."""

    def __init__(self, workers: int = 2) -> None:
        self.idle = workers
        self._counters = [0, 0, 0]
        self.calls: list[str] = []

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Ticket:
        """Run the task and keep what came of it."""
        self.calls.append(task.__name__)
        future: Future[Any] = Future()
        try:
            future.set_result(task(*arguments))
        except Exception as error:
            future.set_exception(error)
        self.idle -= 1
        return Ticket(future, 0)


@dataclass
class FakeEngines:
    """What the engines of a test say: the lines of every page, and for each crop a text or an error to raise."""

    lines: tuple[LineShape, ...] = THREE_LINES
    answer: Callable[[int], str | Exception] = lambda number: f"line {number}"
    segmented: int = 0
    asked_for: list[tuple[str, ...]] = field(default_factory=list)
    crops: list[Pixels] = field(default_factory=list)
    engine: str = "fake 1.0"
    concurrent: bool = False
    proven: ReadingOptions | None = None
    options: list[ReadingOptions] = field(default_factory=list)

    def segmentor(self, model: str) -> "FakeEngines":
        """Stand in for the registry."""
        self.asked_for.append((model,))
        return self

    def transcriber(self, provider: str, model: str, timeout_s: float) -> "FakeEngines":
        """Stand in for the registry."""
        self.asked_for.append((provider, model))
        return self

    def segment(self, picture: Picture.Image) -> tuple[LineShape, ...]:
        """Stand in for a segmentor."""
        self.segmented += 1
        return self.lines

    def transcribe(self, crop: Pixels, options: ReadingOptions) -> LineText:
        """Stand in for a transcriber."""
        self.options.append(options)
        self.crops.append(crop)
        said = self.answer(len(self.crops))
        if isinstance(said, Exception):
            raise said
        return LineText(said, 0.5)


def insert_counted(connection: Connection, image: Image) -> None:
    """Add an image that was never staged, with its bytes."""
    insert_image(connection, image)
    charge(connection, image.workspace_id, used=image.storage_bytes)


class StoppedError(Exception):
    """A transaction is stopped on its way."""


@contextmanager
def stopped_after(engine: Engine, statement: str) -> Iterator[None]:
    """Stop what happens in here right after the first statement that begins so, as if the process had failed there."""

    def stop(_connection: object, _cursor: object, sql: str, *_rest: object) -> None:
        if sql.startswith(statement):
            raise StoppedError

    event.listen(engine, "after_cursor_execute", stop)
    try:
        with pytest.raises(StoppedError):
            yield
    finally:
        event.remove(engine, "after_cursor_execute", stop)


class House:
    """What store tests work in."""

    def __init__(self, engine: Engine, blobs: Path, store_url: str | None = None) -> None:
        self.engine = engine
        self.folder = blobs.parent
        self.store_url = store_url or str(blobs)
        self.settings = IngestSettings(
            engine, self.store_url, PUBLIC_URL, lease_seconds=60, max_attempts=3, limits=LIMITS, reservation_seconds=3600
        )

    def environment(self, database_url: str) -> dict[str, str]:
        """The environment of a `scribe` command that works on this house."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("SCRIBE_")}
        home = str(self.folder / "home")
        return own | {"SCRIBE_HOME": home, "SCRIBE_DATABASE_URL": database_url, "SCRIBE_BLOB_URL": self.store_url}

    def rows(self, statement: str | Select[Any], **values: Any) -> list[Any]:
        """Run a statement and return its rows."""
        with self.engine.connect() as connection:
            return list(connection.execute(text(statement) if isinstance(statement, str) else statement, values))

    def value(self, statement: str, **values: Any) -> Any:
        """Run a statement and return the one value it gives."""
        return self.rows(statement, **values)[0][0]

    def everything(self) -> dict[str, list[str]]:
        """All rows that anybody may write, to compare before and after."""
        return {table: [row[0] for row in self.rows(f"SELECT t::text FROM {table} AS t ORDER BY 1")] for table in EMPTIED}

    def execute(self, statement: str, **values: Any) -> int:
        """Run a statement that changes rows, and return how many."""
        return in_transaction(self.engine, lambda connection: connection.execute(text(statement), values).rowcount)

    def image(self, *, width: int = 400, height: int = 300, workspace: str = "default", scan: Path | None = None) -> Image:
        """A stored image of an item of its own, without a page; `scan` is a file to take instead of an empty picture."""
        item_id = uuid_utils.uuid7()
        with self.engine.begin() as connection:
            owner = workspace_id(connection, workspace)
            connection.execute(insert(items).values(id=item_id, workspace_id=owner, name="item", source_type="upload"))
            return self._store(connection, owner, item_id, 1, png(width, height) if scan is None else scan.read_bytes())

    def _store(self, connection: Connection, owner: UUID, item_id: UUID, sequence: int, data: bytes) -> Image:
        picture = Picture.open(io.BytesIO(data))
        digest, image_id, extension = hashlib.sha256(data).hexdigest(), uuid_utils.uuid7(), str(picture.format).lower()
        image = Image(
            id=image_id,
            workspace_id=owner,
            item_id=item_id,
            sequence=sequence,
            frame=1,
            label=f"{sequence}.{extension}",
            object_key=new_object_key(digest, extension),
            sha256=digest,
            storage_bytes=len(data),
            media_type=f"image/{extension}",
            width=picture.width,
            height=picture.height,
            canvas_uri=canvas_uri(PUBLIC_URL, image_id),
        )
        open_store(self.store_url).write(image.object_key, data, "test")
        insert_counted(connection, image)
        return image

    def unstore(self, image_id: UUID) -> None:
        """Let an image be what it was before its commit: a file that is not done, with a staged object."""
        self.execute("UPDATE ingest_batch_files SET item_image_id = NULL WHERE item_image_id = :id", id=image_id)
        with self.engine.begin() as connection:
            image = load_image(connection, image_id)
            assert image is not None
            stage_blobs(connection, [Blob(image.workspace_id, image.object_key, image.storage_bytes)], 3600)
            connection.execute(delete(item_images).where(item_images.c.id == image_id))

    def page(self, *shapes: LineShape, workspace: str = "default", scan: Path | None = None) -> Image:
        """An image whose page has these lines; three if none are given."""
        image = self.image(workspace=workspace, scan=scan)
        with self.engine.begin() as connection:
            create_page(connection, image, build_page(image, shapes or THREE_LINES), Author("ocr", "test"))
        return image

    def job(self, image: Image | None = None, *, context: str = "letter", max_attempts: int = 3) -> UUID:
        """A pending job for the image, or for one made for it."""
        target = image or self.page()
        with self.engine.begin() as connection:
            snapshot = find_context(connection, target.workspace_id, context)
            return create_job(connection, target, snapshot, max_attempts).job_id

    def ingested(
        self,
        pages: int,
        incomplete: int = 0,
        *,
        scan: Path | None = None,
        shapes: Sequence[LineShape] = THREE_LINES,
        max_attempts: int = 3,
    ) -> tuple[UUID, list[Image]]:
        """A running batch as segmentation leaves it: images with page and pending job, then images that have no page yet."""
        batch_id, item_id = uuid_utils.uuid7(), uuid_utils.uuid7()
        images = []
        data = png() if scan is None else scan.read_bytes()
        with self.engine.begin() as connection:
            owner = workspace_id(connection, "default")
            snapshot = find_context(connection, owner)
            connection.execute(insert(items).values(id=item_id, workspace_id=owner, name="batch", source_type="upload"))
            connection.execute(
                insert(ingest_batches).values(
                    id=batch_id,
                    workspace_id=owner,
                    item_id=item_id,
                    context_id=snapshot.context_id,
                    context_snapshot=snapshot.to_text(),
                    request_hash=hashlib.sha256(batch_id.bytes).hexdigest(),
                    status="running",
                )
            )
            for sequence in range(1, pages + incomplete + 1):
                image = self._store(connection, owner, item_id, sequence, data)
                connection.execute(
                    insert(ingest_batch_files).values(
                        batch_id=batch_id,
                        sequence=sequence,
                        frame=1,
                        workspace_id=owner,
                        filename=image.label,
                        source_uri="file:///nowhere",
                        size_bytes=image.storage_bytes,
                        content_sha256=image.sha256,
                        status="completed" if sequence <= pages else "pending",
                        max_attempts=max_attempts,
                        object_key=image.object_key,
                        item_image_id=image.id,
                    )
                )
                if sequence <= pages:
                    create_page(connection, image, build_page(image, shapes), Author("ocr", "test"))
                    insert_job(connection, image, batch_id, snapshot, 1, max_attempts)
                images.append(image)
        return batch_id, images

    def claim(self, seconds: float = 60) -> JobClaim:
        """Claim the one job that is due first."""
        (claim,) = claim_jobs(self.engine, seconds)
        return claim

    def complete(self, claim: JobClaim, text_of_lines: str = "text", failed: int = 0) -> int:
        """Commit the same text for every line of the claim's page but the last `failed` ones, and return the new revision."""
        with self.engine.connect() as connection:
            image, head = load_image(connection, claim.item_image_id), load_head(connection, claim.item_image_id)
        assert image is not None and head is not None
        ids = [line.annotation_id for line in read_lines(head.payload)]
        read = len(ids) - failed
        texts = {annotation_id: LineText(text_of_lines, 0.9) for annotation_id in ids[:read]}
        return complete_job(self.engine, claim, image, texts, dict.fromkeys(ids[read:], Category.UPSTREAM))

    def save(self, image_id: UUID, expected: int, text_of_line: str | None = None) -> int:
        """Save the page as a person would who has corrected its first line, and return the new revision."""
        with self.engine.connect() as connection:
            head = load_head(connection, image_id)
        assert head is not None
        line = read_lines(head.payload)[0].annotation_id
        corrected = fill_lines(head.payload, {line: LineText(text_of_line or f"by hand {uuid_utils.uuid4()}", 1)})
        return self.save_payload(image_id, expected, corrected)

    def save_payload(self, image_id: UUID, expected: int, payload: str) -> int:
        """Save a whole page as a person would, and return the new revision."""
        return save_page(self.engine, image_id, expected, payload, "reader")

    def subscribe(self, workspace: str = "default") -> None:
        """Give the workspace a webhook."""
        self.execute(
            """INSERT INTO webhook_subscriptions (id, workspace_id, target_url, signing_secret)
               SELECT gen_random_uuid(), id, 'https://example.org/' || gen_random_uuid(), repeat('s', 32)
               FROM workspaces WHERE name = :name""",
            name=workspace,
        )

    def loaded(self, image_id: UUID) -> Image:
        """The image as it is stored."""
        with self.engine.connect() as connection:
            image = load_image(connection, image_id)
        assert image is not None
        return image

    def image_of(self, job_id: UUID) -> UUID:
        """The image that a job works on."""
        return UUID(str(self.value("SELECT item_image_id FROM transcription_jobs WHERE id = :id", id=job_id)))

    def expire_lease(self, table: str = "transcription_jobs") -> None:
        """Let every lease in a table run out now, as if its time had passed."""
        self.execute(f"UPDATE {table} SET lease_until = clock_timestamp() - interval '1 second' WHERE lease_until IS NOT NULL")

    def empty(self) -> None:
        """Remove all rows, evidence too, but those of workspaces, contexts and webhooks; turns begin anew."""
        with self.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("SET session_replication_role = replica"))
            connection.execute(text("; ".join(f"DELETE FROM {table}" for table in EMPTIED)))
            connection.execute(text("SET session_replication_role = origin"))
            connection.execute(text("ALTER SEQUENCE claim_turns RESTART"))
            connection.execute(text("UPDATE storage_quota_usage SET used_bytes = 0, reserved_bytes = 0"))
            # what was deleted would be read over again and again
            connection.execute(text(f"VACUUM {', '.join(EMPTIED)}"))

    def batch(
        self,
        files: dict[str, bytes],
        folder: Path,
        *,
        context: str | None = None,
        metadata: Metadata | None = None,
        again: bool = False,
        max_attempts: int = 3,
    ) -> Batch:
        """A batch of files with these contents."""
        declared = []
        for name, data in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            declared.append(DeclaredFile(name, path.absolute().as_uri(), len(data), hashlib.sha256(data).hexdigest()))
        collection = Collection("folder", tuple(declared), ())
        return request_batch(
            self.engine,
            collection,
            workspace="default",
            context=context,
            metadata=metadata,
            max_attempts=max_attempts,
            reservation_seconds=3600,
            again=again,
        )
