"""The storage audit: each kind of damage is found and named, and nothing else, however busy the house is."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import delete_item
from scribe_pipeline.storage import (
    Finding,
    LocalBlobStore,
    StoredObject,
    audit_queries,
    audit_storage,
    new_object_key,
    open_store,
    remove_due,
)
from tests.houses import FakeEngines, House, png
from tests.store.test_items import furnished
from tests.work import Work

STRAY = new_object_key("0" * 64, "png")
UNKNOWN = "'00000000-0000-7000-8000-00000000dead'"


def lost(table: str, column: str) -> str:
    """Damage: a row of the table refers to what is not there."""
    return f"UPDATE {table} SET {column} = {UNKNOWN} WHERE ctid = (SELECT min(ctid) FROM {table} WHERE {column} IS NOT NULL)"


def waiting(table: str) -> str:
    """Damage: the object of a row of the table waits to be removed."""
    return f"""INSERT INTO resource_cleanup_outbox (id, workspace_id, kind, resource_key)
        SELECT gen_random_uuid(), workspace_id, 'upload_blob', object_key FROM {table} LIMIT 1"""


# For each query of the audit a damage that it finds; queries without their numbers.
DAMAGES = {
    "what is used and reserved is not what is stored, waits to be removed, and is promised":
        "UPDATE storage_quota_usage SET used_bytes = used_bytes + 1 WHERE scope = 'global'",
    "something refers to an object whose removal has begun":
        f"{waiting('item_images')}; UPDATE resource_cleanup_outbox SET delete_fenced_at = now() WHERE status = 'pending'",
    "an image's object waits to be removed": waiting("item_images"),
    "item_images: no item": "DELETE FROM items WHERE ctid = (SELECT min(ctid) FROM items)",
    "ingest_batches: no item": lost("ingest_batches", "item_id"),
    "ingest_batches: no context": lost("ingest_batches", "context_id"),
    "ingest_batch_files: no batch": "DELETE FROM ingest_batches",
    "ingest_batch_files: no image": lost("ingest_batch_files", "item_image_id"),
    "annotation_pages: no image": "DELETE FROM item_images",
    "annotation_page_revisions: no page": "DELETE FROM annotation_pages",
    "annotation_page_revisions: no job": lost("annotation_page_revisions", "job_id"),
    "annotations: no page": lost("annotations", "item_image_id"),
    "transcription_jobs: no page": lost("transcription_jobs", "item_image_id"),
    "transcription_jobs: no batch": lost("transcription_jobs", "batch_id"),
    "transcription_jobs: no context": lost("transcription_jobs", "context_id"),
    "transcription_jobs: no superseded job of the same image": f"UPDATE transcription_jobs SET supersedes = {UNKNOWN}",
    "transcription_job_attempts: no job": lost("transcription_job_attempts", "job_id"),
    "ocr_runs: no image": lost("ocr_runs", "item_image_id"),
    "ocr_runs: no job": lost("ocr_runs", "job_id"),
    "current_ocr_runs: no run of the same image": lost("current_ocr_runs", "item_image_id"),
    "event_outbox: no job, although the image is there": lost("event_outbox", "job_id"),
    "webhook_deliveries: no event": lost("webhook_deliveries", "event_id"),
    "webhook_deliveries: no subscription": "DELETE FROM webhook_subscriptions",
    "context_selection_rules: no context of its workspace, or of all": f"""INSERT INTO context_selection_rules
        (id, workspace_id, context_id, conditions)
        SELECT gen_random_uuid(), id, {UNKNOWN}, '[{{"field": "a", "operator": "eq", "value": "b"}}]' FROM workspaces""",
    "storage_reservations: no file": "UPDATE storage_reservations SET sequence = 99",
    "page_exports: no revision, or no image": "UPDATE page_exports SET revision = 99",
    "page_exports: the object waits to be removed, or is a scan's": waiting("page_exports"),
    "rows without a workspace": lost("annotations", "workspace_id"),
}  # fmt: skip


@pytest.fixture
def damaged(house: House) -> Iterator[House]:
    """A house with a row of every kind; it is emptied at the end, so that its damage breaks no invariant."""
    house.subscribe()
    furnished(house)
    yield house
    house.empty()


def audit(house: House, store: LocalBlobStore | None = None) -> list[Finding]:
    return audit_storage(house.engine, store or open_store(house.store_url))


def test_each_damage_is_found(damaged: House) -> None:
    """R83, R84, R80: a row without its parent, a counter that is wrong, an object that is bound twice: by the check for it."""
    queries = {name.partition(" ")[2]: query for name, query in audit_queries().items()}
    assert list(queries) == list(DAMAGES)
    with damaged.engine.connect() as connection:
        for check, damage in DAMAGES.items():
            assert connection.exec_driver_sql(queries[check]).all() == [], check
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            connection.exec_driver_sql(damage)
            assert connection.exec_driver_sql(queries[check]).all() != [], check
            connection.rollback()


def test_findings_say_what_and_where(damaged: House) -> None:
    """R84: a parent that was deleted in SQL is found by the ids of those that it has left behind, and of what they miss."""
    item_id, workspace_id = damaged.rows("SELECT id, workspace_id FROM items")[0]
    images = [row.id for row in damaged.rows("SELECT id FROM item_images ORDER BY id")]
    batch_id = damaged.value("SELECT id FROM ingest_batches")
    damaged.execute("DELETE FROM items")
    damaged.execute("UPDATE storage_quota_usage SET used_bytes = used_bytes - 1, reserved_bytes = 0 WHERE scope <> 'global'")
    used = damaged.value("SELECT used_bytes FROM storage_quota_usage WHERE scope = 'global'")
    assert sorted(audit(damaged), key=lambda finding: (finding.check, finding.subject)) == [
        Finding("ingest_batches: no item", str(batch_id), f"item {item_id}"),
        *(Finding("item_images: no item", str(image_id), f"item {item_id}") for image_id in images),
        Finding(
            "what is used and reserved is not what is stored, waits to be removed, and is promised",
            str(workspace_id),
            f"used {used - 1}, used found {used}, reserved 0, reserved found 7",
        ),
    ]


def test_a_house_in_order_has_no_findings(house: House, engines: FakeEngines) -> None:
    """R83: batches before, while and after they are worked on, what waits to be removed, and items that were deleted."""
    house.subscribe()
    item_id = furnished(house)
    furnished(house)
    batch = house.batch({"a.png": png(), "b.png": b"no image"}, house.folder / "in")
    assert audit(house) == []
    Work(house, batch).all()
    assert audit(house) == []
    delete_item(house.engine, item_id, Operator("test"))
    assert audit(house) == []
    remove_due(house.engine, {"upload_blob": open_store(house.store_url).delete})
    assert audit(house) == []


def test_objects_and_rows_that_miss_one_another(damaged: House) -> None:
    """R83: an object without an owner, a scan and an export without their objects, and one whose bytes are not all there."""
    blobs = Path(damaged.store_url)
    images = damaged.rows("SELECT id, object_key, storage_bytes FROM item_images ORDER BY sequence")
    export = damaged.rows("SELECT item_image_id, object_key FROM page_exports WHERE format = 'hocr'")[0]
    (blobs / images[0].object_key).unlink()
    (blobs / images[1].object_key).write_bytes(b"half")
    (blobs / export.object_key).unlink()
    (blobs / STRAY).write_bytes(b"stray")
    (blobs / "notes.txt").write_bytes(b"somebody's own")
    (blobs / ".scribe-upload-1").write_bytes(b"just being written")
    assert sorted(audit(damaged), key=lambda finding: finding.check) == [
        Finding("an export whose object is not there", str(export.item_image_id), f"object {export.object_key}"),
        Finding("an image whose object is not there", str(images[0].id), f"object {images[0].object_key}"),
        Finding(
            "an object of another size than its row says", images[1].object_key, f"4 bytes instead of {images[1].storage_bytes:,}"
        ),
        Finding("an object that nothing refers to", STRAY, "5 bytes"),
    ]


@pytest.mark.parametrize("at_once", [1, 3, 10])
def test_a_large_store_is_looked_at_piece_by_piece(damaged: House, monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    """R83: however few objects and rows are read at once, none is passed over; and of each check only so many are told."""
    monkeypatch.setattr("scribe_pipeline.storage.audit._AT_ONCE", at_once)
    blobs = Path(damaged.store_url)
    for row in damaged.rows("SELECT object_key FROM item_images UNION SELECT object_key FROM page_exports"):
        (blobs / row.object_key).rename(blobs / new_object_key(row.object_key[:64], "png"))
    assert [finding.check for finding in audit(damaged)] == [
        *["an object that nothing refers to"] * 9,
        *["an image whose object is not there"] * 4,
        *["an export whose object is not there"] * 5,
    ]
    monkeypatch.setattr("scribe_pipeline.storage.audit.MOST_A_CHECK", 2)
    damaged.execute("UPDATE ingest_batch_files SET item_image_id = gen_random_uuid() WHERE item_image_id IS NOT NULL")
    counts: dict[str, int] = {}
    for finding in audit(damaged):
        counts[finding.check] = counts.get(finding.check, 0) + 1
    assert counts == {
        "ingest_batch_files: no image": 2,
        "an object that nothing refers to": 2,
        "an image whose object is not there": 2,
        "an export whose object is not there": 2,
    }


class Busy(LocalBlobStore):
    """A store in which something happens while it is being looked at."""

    def __init__(self, house: House, hidden: str = "", added: str = "", looked: Callable[[], object] = lambda: None) -> None:
        super().__init__(Path(house.store_url))
        self._hidden, self._added, self._looked = hidden, added, looked

    def stored(self) -> Iterator[StoredObject]:
        """List what is there, but for what comes a moment later, and with what goes a moment later."""
        yield from (entry for entry in super().stored() if entry.key != self._hidden)
        if self._added:
            yield StoredObject(self._added, 1)

    def exists(self, key: str) -> bool:
        """Look once more, a moment later."""
        self._looked()
        return super().exists(key)


def test_what_comes_and_goes_meanwhile_is_no_finding(house: House) -> None:
    """R83: an object that is removed, stored or deleted with its item, between the looks at the store and at the rows."""
    item_id = furnished(house)
    key = house.value("SELECT object_key FROM item_images LIMIT 1")
    assert audit(house, Busy(house, added=STRAY)) == []
    assert audit(house, Busy(house, hidden=key)) == []
    calls: list[Any] = []

    def delete() -> None:
        if not calls:
            calls.append(delete_item(house.engine, item_id, Operator("test")))
            remove_due(house.engine, {"upload_blob": open_store(house.store_url).delete})

    assert audit(house, Busy(house, hidden=key, looked=delete)) == []
    assert calls, "the item went in between"


def test_all_rows_are_seen_at_one_time(house: House) -> None:
    """R83: whatever is committed while the rows are compared is seen by no query; nothing is locked or written."""
    item_id = furnished(house)
    seen: list[tuple[str, str]] = []

    def look(connection: Any, _cursor: object, statement: str, *_rest: object) -> None:
        if "AS finding" in statement:
            seen.append((connection.get_isolation_level(), statement))
            if len(seen) == 2:
                delete_item(house.engine, item_id, Operator("test"))

    event.listen(house.engine, "before_cursor_execute", look)
    assert audit(house) == []
    event.remove(house.engine, "before_cursor_execute", look)
    assert {level for level, _ in seen} == {"REPEATABLE READ"}
    assert len(seen) == len(audit_queries())
    with house.engine.connect() as connection:
        assert connection.get_isolation_level() == "READ COMMITTED"
