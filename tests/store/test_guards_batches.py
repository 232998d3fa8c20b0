"""Conditions of single statements on batches and their files: each test fails if one of them is left out."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pydantic import SecretStr
from sqlalchemy import event

from scribe_pipeline.database import Lease
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import ValidationSource, cancel_batch, due_batches, open_batch, raise_generation, settle_batch
from scribe_pipeline.ingest.claims import FileClaim, claim_file, end_file_attempt, renew_file, stage_object
from scribe_pipeline.jobs import claim_jobs
from scribe_pipeline.storage import new_object_key
from tests.houses import FakeEngines, House, png
from tests.store.test_guards_store import refused
from tests.work import Work

OPERATOR = Operator("test")
LATE_WRITES: dict[str, Callable[[House, FileClaim], object]] = {
    "note": lambda house, claim: stage_object(house.engine, claim, new_object_key(claim.content_sha256, "png"), 60),
    "defer": lambda house, claim: end_file_attempt(house.engine, claim, Category.TIMEOUT, "late"),
    "fail": lambda house, claim: end_file_attempt(house.engine, claim, Category.DAMAGED, "late"),
}


def take(house: House, batch_id: UUID) -> FileClaim | None:
    """Claim the batch's next file that is not stored yet."""
    claim = claim_file(house.engine, batch_id, 60, stored=False)
    assert claim is None or isinstance(claim, FileClaim)
    return claim


def files(house: House) -> list[Any]:
    """All rows of files."""
    return house.rows("SELECT * FROM ingest_batch_files ORDER BY batch_id, sequence, frame")


@pytest.mark.parametrize("write", LATE_WRITES)
@pytest.mark.parametrize(
    "change",
    [
        {"batch_id": UUID(int=1)},
        {"sequence": 2},
        {"frame": 2},
        {"attempt_count": 2},
        {"lease": Lease("someone", SecretStr("another token"), 60)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_every_part_of_a_files_fence_counts(house: House, tmp_path: Path, write: str, change: dict[str, Any]) -> None:
    """R97: batch, sequence, frame, attempt and token must each be the right one."""
    claim = take(house, house.batch({"a.png": png()}, tmp_path).id)
    assert claim is not None
    forged = replace(claim, **change)
    before = files(house)
    assert not renew_file(house.engine, forged)
    refused(lambda: LATE_WRITES[write](house, forged), Category.LEASE_LOST)
    assert files(house) == before


def test_a_claim_takes_one_file(house: House, tmp_path: Path) -> None:
    """R94: of its batch alone, in the order of sequence and frame, and none that is deferred or held."""
    batch = house.batch({"a.png": png(), "b.png": png(colour="red")}, tmp_path)
    columns = "batch_id, sequence, workspace_id, filename, source_uri, size_bytes, content_sha256, max_attempts"
    house.execute(
        f"INSERT INTO ingest_batch_files ({columns}, frame) SELECT {columns}, 2 FROM ingest_batch_files WHERE sequence = 1"
    )
    first = take(house, batch.id)
    assert first is not None
    end_file_attempt(house.engine, first, Category.TIMEOUT, "later")
    taken = [take(house, batch.id) for _ in range(2)]
    assert [claim and (claim.sequence, claim.frame) for claim in (first, *taken)] == [(1, 1), (1, 2), (2, 1)]
    house.batch({"c.png": png(colour="blue")}, tmp_path)
    assert take(house, batch.id) is None


def test_an_expired_claim_is_taken(house: House, tmp_path: Path) -> None:
    """R37: a file whose worker vanished is due again."""
    batch = house.batch({"a.png": png()}, tmp_path)
    take(house, batch.id)
    house.expire_lease("ingest_batch_files")
    again = take(house, batch.id)
    assert again is not None
    assert again.attempt_count == 2


def test_a_file_has_only_so_many_attempts(house: House, tmp_path: Path) -> None:
    """R87: a failure that may pass ends the file at its last attempt."""
    batch = house.batch({"a.png": png()}, tmp_path)
    house.execute("UPDATE ingest_batch_files SET max_attempts = 1")
    claim = take(house, batch.id)
    assert claim is not None
    assert end_file_attempt(house.engine, claim, Category.TIMEOUT, "too often")


def test_a_batch_that_is_over_is_left_alone(house: House, tmp_path: Path) -> None:
    """R27: who comes after a cancel opens nothing, claims nothing, and asks for no other run."""
    batch = house.batch({"a.png": png()}, tmp_path)
    house.execute("UPDATE ingest_batches SET status = 'canceled', finished_at = clock_timestamp()")
    assert take(house, batch.id) is None
    house.execute("UPDATE ingest_batch_files SET status = 'canceled'")
    assert open_batch(house.engine, batch.id).status == "canceled"
    assert settle_batch(house.engine, batch.id, 0).status == "canceled"
    assert not raise_generation(house.engine, batch.id, 0)


def test_a_batch_is_over_when_nothing_of_it_is_open(house: House) -> None:
    """R119: an open file keeps a batch open, and so does an open job; another batch's do not."""
    with_job, _ = house.ingested(1)
    with_file, _ = house.ingested(0, incomplete=1)
    empty, _ = house.ingested(0)
    for batch_id in (with_job, with_file, empty):
        settle_batch(house.engine, batch_id, 0)
    assert house.rows("SELECT status, dispatch_generation FROM ingest_batches ORDER BY id") == [
        ("running", 1), ("running", 1), ("failed", 0),
    ]  # fmt: skip


def test_a_batch_is_begun_alone(house: House, tmp_path: Path) -> None:
    """R86: who begins a batch, or asks for another run on it, does so for no other."""
    batch, other = (house.batch({name: png()}, tmp_path) for name in ("a.png", "b.png"))
    assert open_batch(house.engine, batch.id).status == "running"
    assert raise_generation(house.engine, batch.id, 0)
    assert house.rows("SELECT status, dispatch_generation FROM ingest_batches WHERE id = :id", id=other.id) == [("pending", 0)]


def test_settling_asks_for_nothing_that_was_asked_for(house: House) -> None:
    """R86: whoever settles with an old generation in mind leaves the batch's own."""
    batch_id, _ = house.ingested(1)
    assert settle_batch(house.engine, batch_id, 5).dispatch_generation == 0


def test_a_batch_whose_jobs_are_held_is_not_due(house: House) -> None:
    """R86: a run is asked for when there is something to do, not while somebody does it."""
    batch_id, _ = house.ingested(1)
    house.ingested(0)
    claim_jobs(house.engine, 60, 1, batch_id)
    with house.engine.connect() as connection:
        assert batch_id not in {batch.id for batch in due_batches(connection, 10)}


def test_cancel_reaches_what_is_open_of_one_batch(house: House) -> None:
    """R23, R24, R119: neither what has ended, nor a page, nor another batch; objects without an owner are handed over."""
    canceled, images = house.ingested(2, incomplete=4)
    house.complete(house.claim())
    for image in images[3:]:
        house.unstore(image.id)
    house.execute("UPDATE ingest_batch_files SET status = 'failed', error_category = 'damaged' WHERE sequence = 5")
    house.execute("UPDATE ingest_batch_files SET object_key = NULL WHERE sequence = 6")
    other, _ = house.ingested(1, incomplete=1)
    untouched = {
        "transcription_jobs": "batch_id = :id",
        "ingest_batch_files": "batch_id = :id",
        "item_images": "item_id = (SELECT item_id FROM ingest_batches WHERE id = :id)",
        "ingest_batches": "id = :id",
    }
    before = [house.rows(f"SELECT * FROM {table} WHERE {which}", id=other) for table, which in untouched.items()]
    assert cancel_batch(house.engine, canceled, OPERATOR)
    assert [house.rows(f"SELECT * FROM {table} WHERE {which}", id=other) for table, which in untouched.items()] == before
    assert house.rows("SELECT status FROM transcription_jobs WHERE batch_id = :id ORDER BY id", id=canceled) == [
        ("completed",), ("canceled",),
    ]  # fmt: skip
    rows = house.rows("SELECT status FROM ingest_batch_files WHERE batch_id = :id ORDER BY sequence", id=canceled)
    assert [row.status for row in rows] == ["completed", "completed", "canceled", "canceled", "failed", "canceled"]
    left = house.rows("SELECT id FROM item_images WHERE item_id = :id ORDER BY sequence", id=images[0].item_id)
    assert [row.id for row in left] == [image.id for image in images[:2]]
    removed = {row.resource_key for row in house.rows("SELECT resource_key FROM resource_cleanup_outbox WHERE status = 'pending'")}
    assert removed == {images[2].object_key}


def test_only_an_open_batch_is_canceled(house: House) -> None:
    """R119: a second cancel changes nothing, and one that comes too late says so."""
    batch_id, _ = house.ingested(1)
    assert cancel_batch(house.engine, batch_id, OPERATOR)
    assert not cancel_batch(house.engine, batch_id, OPERATOR)
    assert house.value("SELECT count(*) FROM operator_audit") == 1
    failed = settle_batch(house.engine, house.ingested(0)[0], 0)
    assert "only an open batch" in refused(lambda: cancel_batch(house.engine, failed.id, OPERATOR), Category.FAILED_PRECONDITION)


def test_a_request_after_a_cancel_is_a_new_batch(house: House, tmp_path: Path) -> None:
    """R94: a canceled batch stands in nobody's way, and of two requests that meet both get the new one."""
    files_ = {"a.png": png()}
    canceled = house.batch(files_, tmp_path)
    cancel_batch(house.engine, canceled.id, OPERATOR)
    overtaken: list[UUID] = []

    def overtake(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
        if statement.startswith("SELECT ingest_batches.id, ingest_batches.again") and not overtaken:
            overtaken.append(canceled.id)
            overtaken.append(house.batch(files_, tmp_path).id)

    event.listen(house.engine, "after_cursor_execute", overtake)
    late = house.batch(files_, tmp_path)
    event.remove(house.engine, "after_cursor_execute", overtake)
    assert overtaken == [canceled.id, late.id]
    assert late.id != canceled.id


def test_only_what_is_not_stored_is_read_from_its_new_place(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R94: a request from elsewhere changes no file that is stored or over, and none of another batch."""
    named = {"a.png": png(), "b.png": b"bad", "c.png": png(colour="red"), "d.png": png(colour="green")}
    batch = house.batch(named, tmp_path / "old")
    house.batch({"e.png": png(colour="blue")}, tmp_path / "old")
    source = ValidationSource(house.settings, batch.id, lambda _: None, lambda _: None)
    for _ in range(2):
        (unit,) = source.claim(1)
        try:
            unit.finish(unit.task(*unit.arguments))
        except ScribeError as error:
            unit.fail(error.category, error.message)
    house.batch(named, tmp_path / "new")
    places = [row.source_uri for row in house.rows("SELECT source_uri FROM ingest_batch_files ORDER BY filename")]
    ends = ["old/a.png", "old/b.png", "new/c.png", "new/d.png", "old/e.png"]
    assert [Path(place).parts[-2:] for place in places] == [Path(end).parts for end in ends]


def test_a_scan_that_was_stored_is_not_removed(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R97, R51: who lost the answer to his commit and commits again leaves image and object as they are."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    (unit,) = source.claim(1)
    facts = unit.task(*unit.arguments)
    unit.finish(facts)
    unit.finish(facts)
    assert [path.name for path in Path(house.store_url).iterdir()] == [house.value("SELECT object_key FROM item_images")]


def test_an_engine_names_no_category_that_no_row_may_hold(
    house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R21: what an engine says of the house's own categories counts as unclassified, which a retry may help."""

    def segment(_: object) -> None:
        raise ScribeError(Category.NOT_FOUND, "what it was looking for")

    monkeypatch.setattr(engines, "segment", segment)
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    work.validate()
    work.segment()
    assert house.rows("SELECT status, attempt_count FROM ingest_batch_files") == [("pending", 1)]
