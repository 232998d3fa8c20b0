"""Deleting an item: all of it or nothing, what it leaves behind, and that no worker writes anything of it afterwards."""

import re
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, event

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.exports import derive_exports
from scribe_pipeline.ingest import (
    delete_item,
    list_items,
    load_item,
    open_batch,
    settle_batch,
)
from scribe_pipeline.ingest.claims import claim_file
from scribe_pipeline.jobs import (
    claim_jobs,
)
from scribe_pipeline.storage import UPLOAD, open_store, remove_due
from tests.houses import EMPTIED, FakeEngines, House, png, stopped_after
from tests.work import Work

OPERATOR = Operator("anna@archive", "asked for by its owner")
# What tells of an item that is gone, what is still to be done about it, and what is no item's.
STAYING = {
    "event_outbox", "webhook_deliveries", "operator_audit", "resource_cleanup_outbox",
    "flyer_tagging_jobs", "files", "outcome_activations", "context_selection_rules",
}  # fmt: skip
REMOVALS = "SELECT kind, resource_key, storage_bytes, status FROM resource_cleanup_outbox ORDER BY 1, 2"
COUNTERS = "SELECT used_bytes, reserved_bytes FROM storage_quota_usage ORDER BY scope"

# Every statement of a deletion that writes, in its order.
WRITES = [
    "INSERT INTO resource_cleanup_outbox", "INSERT INTO resource_cleanup_outbox", "SET LOCAL scribe",
    "DELETE FROM ingest_batch_files", "DELETE FROM transcription_job_attempts", "DELETE FROM transcription_jobs",
    "DELETE FROM current_ocr_runs", "DELETE FROM ocr_runs", "DELETE FROM page_exports", "DELETE FROM annotations",
    "DELETE FROM annotation_page_revisions", "DELETE FROM annotation_pages", "DELETE FROM ingest_batches",
    "DELETE FROM item_images", "DELETE FROM items", "DELETE FROM storage_reservations", "UPDATE storage_quota_usage",
    "INSERT INTO operator_audit",
]  # fmt: skip


def remove(house: House, item_id: UUID, engine: Engine | None = None) -> None:
    """Delete the item."""
    delete_item(engine or house.engine, item_id, OPERATOR)


def furnished(house: House) -> UUID:
    """An item with a row in every table: drafts with exports, a running job, a scan that is just being stored, room reserved."""
    batch_id, images = house.ingested(3, incomplete=2)
    done, _ = claim_jobs(house.engine, 60, 2, batch_id)
    house.complete(done)
    derive_exports(house.engine, open_store(house.store_url), done.item_image_id, 2)
    house.unstore(images[-1].id)
    with house.engine.begin() as connection:
        connection.exec_driver_sql(
            f"INSERT INTO storage_reservations (id, workspace_id, batch_id, sequence, reserved_bytes, expires_at) "
            f"SELECT gen_random_uuid(), workspace_id, id, 5, 7, 'infinity' FROM ingest_batches WHERE id = '{batch_id}'"
        )
        connection.exec_driver_sql("UPDATE storage_quota_usage SET reserved_bytes = reserved_bytes + 7")
    return images[0].item_id


def keys(house: House) -> set[str]:
    """The objects in the store."""
    return {entry.key for entry in open_store(house.store_url).stored()}


def nothing_is_left(house: House) -> bool:
    """Whether no row of any item is there, and each object in the store waits to be removed."""
    rows = house.everything()
    waiting = {row.resource_key for row in house.rows(REMOVALS)}
    return not any(rows[table] for table in EMPTIED if table not in STAYING) and keys(house) <= waiting


def test_every_row_of_an_item_goes_and_no_other(house: House) -> None:
    """R81: no row of any child table is left of it; those of another item are as they were."""
    furnished(house)
    before = house.everything()
    item_id = furnished(house)
    there = house.everything()
    assert all(len(there[table]) > len(before[table]) for table in EMPTIED if table not in STAYING), "each table is tried"
    remove(house, item_id)
    after = house.everything()
    assert {table: rows for table, rows in after.items() if table not in STAYING} == {
        table: rows for table, rows in before.items() if table not in STAYING
    }
    assert all(set(before[table]) <= set(after[table]) for table in STAYING), "nor what is to be done for another item"


def test_what_is_outside_is_handed_over(house: House) -> None:
    """R82: as soon as the item is gone there is a row for each scan with its bytes, each export, each projection."""
    furnished(house)
    others = {row.resource_key for row in house.rows(REMOVALS)}
    item_id = furnished(house)
    images = house.rows("SELECT id, object_key, storage_bytes FROM item_images WHERE item_id = :id", id=item_id)
    exports = house.rows(
        "SELECT e.object_key FROM page_exports AS e JOIN item_images AS i ON i.id = item_image_id WHERE item_id = :id", id=item_id
    )
    (staged,) = ((row.resource_key, row.storage_bytes) for row in house.rows(REMOVALS) if row.resource_key not in others)
    assert (len(images), len(exports)) == (4, 5)
    remove(house, item_id)
    assert [tuple(row) for row in house.rows(REMOVALS) if row.resource_key not in others] == sorted(
        [
            *(("upload_blob", image.object_key, image.storage_bytes, "pending") for image in images),
            *(("upload_blob", export.object_key, 0, "pending") for export in exports),
            # a worker may be writing it: its own deadline counts
            ("upload_blob", *staged, "staged"),
            *(("triplet_presentation_image", str(image.id), 0, "pending") for image in images),
            ("triplet_presentation_item", str(item_id), 0, "pending"),
        ]
    )
    due = "SELECT kind, resource_key FROM resource_cleanup_outbox WHERE next_attempt_at <= clock_timestamp()"
    assert {row.resource_key for row in house.rows(due)} == {row.object_key for row in (*images, *exports)}


def test_bytes_count_until_they_are_removed(house: House) -> None:
    """R81, R82: the deletion gives no byte of a scan back, only what was reserved; the removal gives all back."""
    furnished(house)
    others, kept = house.rows(COUNTERS), [row.resource_key for row in house.rows(REMOVALS)]
    item_id = furnished(house)
    before = house.rows(COUNTERS)
    remove(house, item_id)
    after = house.rows(COUNTERS)
    assert [row.used_bytes for row in after] == [row.used_bytes for row in before]
    assert [row.reserved_bytes for row in after] == [row.reserved_bytes for row in others] == [7, 7]
    house.execute(
        "UPDATE resource_cleanup_outbox SET next_attempt_at = clock_timestamp() WHERE resource_key <> ALL (:kept)", kept=kept
    )
    assert remove_due(house.engine, {UPLOAD: open_store(house.store_url).delete}).removed == 4 + 5 + 1
    assert house.rows(COUNTERS) == others


def test_what_happened_stays(house: House) -> None:
    """R82: events with their deliveries outlive the item, and the audit says who deleted it."""
    house.subscribe()
    item_id = furnished(house)
    told = house.rows("SELECT * FROM event_outbox") + house.rows("SELECT * FROM webhook_deliveries")
    remove(house, item_id)
    assert told == house.rows("SELECT * FROM event_outbox") + house.rows("SELECT * FROM webhook_deliveries") != []
    assert [tuple(row) for row in house.rows("SELECT actor, action, subject, reason FROM operator_audit")] == [
        ("anna@archive", "item delete", f"item {item_id}", "asked for by its owner")
    ]


def test_the_order_of_a_deletion(house: House) -> None:
    """R81, R82, R144: locks in the house's order; what is to be removed before the children, each child before its parent."""
    item_id = furnished(house)
    sent: list[str] = []
    event.listen(house.engine, "before_cursor_execute", lambda *args: sent.append(args[2]))
    remove(house, item_id)
    locks = [re.findall(r"FROM (\w+)", sql)[0] for sql in sent if "FOR UPDATE" in sql]
    assert locks == [
        "storage_quota_usage", "ingest_batches", "ingest_batch_files", "items", "item_images", "transcription_jobs",
    ]  # fmt: skip
    writes = [sql for sql in sent if not sql.startswith("SELECT")]
    assert [sql[: len(expected)] for sql, expected in zip(writes, WRITES, strict=True)] == WRITES


def test_a_deletion_that_fails_on_its_way_changes_nothing(house: House) -> None:
    """R81: whichever of its statements is the last one before a failure, everything is as it was; then it can be done."""
    item_id = furnished(house)
    before = house.everything(), house.rows(COUNTERS)
    for statement in WRITES:
        with stopped_after(house.engine, statement):
            remove(house, item_id)
        assert (house.everything(), house.rows(COUNTERS)) == before, f"after {statement}"
    remove(house, item_id)
    assert nothing_is_left(house)


def test_evidence_is_let_go_for_this_transaction_only(house: House) -> None:
    """R80: on the same connection, evidence is kept again as soon as the item is gone."""
    item_id = furnished(house)
    other = furnished(house)
    remove(house, item_id)
    with pytest.raises(ScribeError, match="23001"):
        house.execute("DELETE FROM transcription_jobs")
    remove(house, other)


def test_what_is_not_there(house: House) -> None:
    """R80: an item that is not there is named, and nothing is written; so is one that was deleted just now."""
    item_id = furnished(house)
    for wrong in (uuid4(), item_id):
        if wrong == item_id:
            remove(house, item_id)
        before = house.everything()
        for ask in (lambda wrong=wrong: remove(house, wrong), lambda wrong=wrong: shown(house, wrong)):
            with pytest.raises(ScribeError, match=f"there is no item {wrong}") as caught:
                ask()
            assert caught.value.category is Category.NOT_FOUND
        assert house.everything() == before


def shown(house: House, item_id: UUID) -> Any:
    """The item as it is shown."""
    with house.engine.connect() as connection:
        return load_item(connection, item_id)


def test_what_there_is_of_items(house: House) -> None:
    """R86: a list of items, newest first, and of each image its stage; also of an item that came of no batch."""
    alone = house.page()
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'other')")
    house.image(workspace="other")
    batch_id, images = house.ingested(2, incomplete=1)
    house.complete(house.claim())
    with house.engine.connect() as connection:
        listed = list_items(connection)
    size = images[0].storage_bytes
    assert [(item.name, item.workspace, item.images, item.bytes) for item in listed] == [
        ("batch", "default", 3, 3 * size), ("item", "other", 1, size), ("item", "default", 1, size)
    ]  # fmt: skip
    detail = shown(house, images[0].item_id)
    assert (detail.item, detail.batch_id) == (listed[0], batch_id)
    assert [(image.id, image.label, image.stage, image.revision, image.bytes) for image in detail.images] == [
        (images[0].id, "1.png", "review", 2, size),
        (images[1].id, "2.png", "transcribe", 1, size),
        (images[2].id, "3.png", "segment", None, size),
    ]
    assert shown(house, alone.item_id).batch_id is None


def test_the_same_files_again_are_a_new_item(house: House, engines: FakeEngines) -> None:
    """R80: what was deleted is not resumed; the same request starts anew and becomes drafts."""
    first = house.batch({"a.png": png()}, house.folder / "in")
    Work(house, first).all()
    remove(house, house.value("SELECT id FROM items"))
    second = house.batch({"a.png": png()}, house.folder / "in")
    assert second.id != first.id
    assert Work(house, second).all().status == "completed"


def test_a_run_on_a_deleted_batch_is_told(house: House) -> None:
    """R80: whoever works on an open batch whose item is deleted hears that there is no such batch."""
    batch_id, images = house.ingested(1)
    remove(house, images[0].item_id)
    for ask in (lambda: open_batch(house.engine, batch_id), lambda: settle_batch(house.engine, batch_id, 0)):
        with pytest.raises(ScribeError, match=f"there is no batch {batch_id}") as caught:
            ask()
        assert caught.value.category is Category.NOT_FOUND
    assert claim_file(house.engine, batch_id, 60, stored=True) is None
