"""A store and its rows in the middle of everything, and all that may happen to an object there at the same time."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, text

from scribe_pipeline.database import connect, in_transaction
from scribe_pipeline.engines import Segmentation, Ticket
from scribe_pipeline.errors import Category
from scribe_pipeline.events import Operator
from scribe_pipeline.exports import derive_exports
from scribe_pipeline.ingest import ValidationSource, cancel_batch, delete_item
from scribe_pipeline.ingest.claims import FileClaim
from scribe_pipeline.ingest.work import ValidationUnit
from scribe_pipeline.jobs import drain
from scribe_pipeline.storage import UPLOAD, Blob, LocalBlobStore, hand_over_blobs, remove_due, upload_remover
from scribe_pipeline.workspaces import sweep_reservations
from tests.faults.kept import EMPTY, KeptRows
from tests.faults.schedule import Operation, step
from tests.houses import THREE_LINES, House, InlinePool, png
from tests.work import Work

_LEASE_SECONDS = 7 * 86400
_OPERATOR = Operator("operator", "to see")
_START = 0
KINDS = ("commit", "upload", "export", "cleanup", "recovery", "cancel", "delete", "fail", "try again", "sweep", "err")
# What an operation may refuse.
REFUSALS: dict[str, set[Category]] = {
    "export": {Category.NOT_FOUND},
    "cancel": {Category.NOT_FOUND},
    "delete": {Category.NOT_FOUND},
    "fail": {Category.LEASE_LOST},
    "try again": {Category.LEASE_LOST},
}
_FILES = ("commits.png", "complete.png", "incomplete.png", "waits.png")
# Whoever is just busy with a row is passed by.
_ALL_DUE = """UPDATE resource_cleanup_outbox SET next_attempt_at = clock_timestamp(){more} WHERE id IN (
    SELECT id FROM resource_cleanup_outbox WHERE kind = 'upload_blob' FOR UPDATE SKIP LOCKED)"""
_DUE = _ALL_DUE.format(more="")
_DUE_AND_LOST = _ALL_DUE.format(
    more=", lease_until = CASE WHEN status = 'processing' THEN clock_timestamp() - interval '1 second' END"
)


class SteppedStore(LocalBlobStore):
    """A folder whose changes are steps of a schedule."""

    def write(self, key: str, data: bytes, claim: str) -> None:
        """Write when it is the object's turn."""
        step("write the object")
        super().write(key, data, claim)

    def delete(self, key: str) -> None:
        """Delete when it is the object's turn."""
        step("delete the object")
        super().delete(key)


class _Pool(InlinePool):
    def submit(self, task: Callable[..., Any], *arguments: Any) -> Ticket:
        step("check and store the file")
        return super().submit(task, *arguments)


class _Once:
    """A source of one unit, whose result is there already."""

    def __init__(self, unit: ValidationUnit, result: object) -> None:
        self._units = [unit]
        unit.task, unit.arguments = (lambda: result), ()

    def claim(self, limit: int) -> list[ValidationUnit]:
        units, self._units = self._units, []
        return units


class Rivals:
    """A batch of four files: one is stored, but not committed, and its time is over; one is complete but for one of its exports;
    one has an image without a page; one has not been begun, and its reservation's time is over, too.
    """

    def __init__(self, url: str, folder: Path) -> None:
        self.engine = connect(url)
        self.store = SteppedStore(folder / "blobs")
        self._house = House(self.engine, self.store.folder)
        self._rows = KeptRows(url)
        self._rows.put(EMPTY)
        self._make(folder)
        self._rows.keep(_START)
        self._kept = {path.name: path.read_bytes() for path in self.store.folder.iterdir()}
        self.operations: dict[str, Callable[[Engine], Any]] = {
            "commit": self._commit,
            "upload": self._upload,
            "export": lambda engine: len(derive_exports(engine, self.store, self._complete.id, 1).exports),
            "cleanup": lambda engine: self._clean(engine, _DUE),
            "recovery": lambda engine: self._clean(engine, _DUE_AND_LOST),
            "cancel": lambda engine: cancel_batch(engine, self.batch_id, _OPERATOR),
            "delete": lambda engine: delete_item(engine, self._complete.item_id, _OPERATOR),
            "fail": lambda engine: self._fail(engine, Category.DAMAGED),
            "try again": lambda engine: self._fail(engine, Category.TIMEOUT),
            "sweep": sweep_reservations,
            "err": self._err,
        }

    def start(self) -> None:
        """Put rows and objects there again as they were."""
        self._rows.put(_START)
        for path in self.store.folder.iterdir():
            if path.name not in self._kept:
                path.unlink()
        for name, data in self._kept.items():
            if not (self.store.folder / name).exists():
                (self.store.folder / name).write_bytes(data)

    def operation(self, name: str) -> Operation:
        """One of the operations, for a session."""
        return Operation(name, "", self.operations[name])

    def clean(self) -> None:
        """Remove all that waits for it, after whatever time it takes."""
        in_transaction(self.engine, lambda connection: connection.execute(text(_DUE_AND_LOST)))
        remove_due(self.engine, {UPLOAD: upload_remover(self.engine, self.store)})

    def close(self) -> None:
        """Give up the connections."""
        self.engine.dispose()
        self._rows.close()

    def _make(self, folder: Path) -> None:
        house = self._house
        house.settings = replace(house.settings, lease_seconds=_LEASE_SECONDS)
        batch = house.batch({name: png(colour=f"#0000f{number}") for number, name in enumerate(_FILES)}, folder)
        work, images = Work(house, batch), []
        source = ValidationSource(house.settings, batch.id, images.append, work.refused.append)
        first, *others = [unit for _ in range(3) for unit in source.claim(1)]
        self._result = first.task(*first.arguments)
        for unit in others:
            unit.finish(unit.task(*unit.arguments))
        (segmentation,) = work.segmentation().claim(1)
        segmentation.finish(Segmentation(THREE_LINES, "fake 1.0", 0.0))
        self.batch_id, self._complete = batch.id, images[0]
        self._claim: FileClaim = first._claim
        missing = derive_exports(house.engine, self.store, self._complete.id, 1).exports[0]
        self.store.delete(missing.object_key)
        house.execute("DELETE FROM page_exports WHERE object_key = :key", key=missing.object_key)
        house.execute("UPDATE storage_reservations SET expires_at = clock_timestamp() - interval '1 second'")
        house.execute("UPDATE resource_cleanup_outbox SET next_attempt_at = clock_timestamp() - interval '1 second'")

    def _source(self, engine: Engine, stored: list[Any]) -> ValidationSource:
        source = ValidationSource(replace(self._house.settings, engine=engine), self.batch_id, stored.append, lambda _: None)
        source.store = self.store
        return source

    def _commit(self, engine: Engine) -> list[str]:
        """Commit the scan that is stored; say which object has become an image's."""
        stored: list[Any] = []
        drain([_Once(ValidationUnit(self._source(engine, stored), self._claim), self._result)], InlinePool(), _LEASE_SECONDS, 60)
        return [image.object_key for image in stored]

    def _upload(self, engine: Engine) -> list[str]:
        """Do all there is to do for files that are not stored."""
        stored: list[Any] = []
        drain([self._source(engine, stored)], _Pool(), _LEASE_SECONDS, 60)
        return [image.object_key for image in stored]

    def _fail(self, engine: Engine, category: Category) -> None:
        ValidationUnit(self._source(engine, []), self._claim).fail(category, "it came to nothing")

    def _clean(self, engine: Engine, time_passes: str) -> object:
        in_transaction(engine, lambda connection: connection.execute(text(time_passes)))
        return remove_due(engine, {UPLOAD: upload_remover(engine, self.store)})

    def _err(self, engine: Engine) -> None:
        """Ask for the removal of an object that is in use."""
        image = self._complete
        in_transaction(engine, lambda connection: hand_over_blobs(connection, [Blob(image.workspace_id, image.object_key, 0)]))
