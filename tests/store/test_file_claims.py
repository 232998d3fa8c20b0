"""Claims on batch files: fences, attempts, interruptions, and what a dead or late worker leaves in the store."""

import time
from pathlib import Path

import pytest

from scribe_pipeline.database import DatabaseError
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.ingest import (
    ValidationSource,
)
from scribe_pipeline.ingest.claims import FileClaim, GivenUp, claim_file
from scribe_pipeline.jobs import drain
from tests.houses import FakeEngines, House, InlinePool, StoppedError, line_shape, png
from tests.work import Work

WAITING = """SELECT resource_key, storage_bytes, status, next_attempt_at - created_at > interval '59 minutes'
             FROM resource_cleanup_outbox"""


def test_the_next_claim_removes_what_a_dead_one_left(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R51: a worker killed while it stored a scan leaves neither a temporary nor an object that nobody refers to."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    (dead,) = source.claim(1)
    dead.task(*dead.arguments)
    folder = Path(house.store_url)
    (folder / f".scribe-upload-{work.batch.id}-1-1-left").write_bytes(b"half")
    (folder / f".scribe-upload-{work.batch.id}-11-1-other").write_bytes(b"half")
    left = {path.name for path in folder.iterdir()}
    house.expire_lease("ingest_batch_files")
    work.all()
    kept = {path.name for path in folder.iterdir()}
    assert len(left & kept) == 1, "only the other file's temporary is still there"
    assert house.value("SELECT object_key FROM item_images") in kept


def test_an_interrupted_claim_leaves_nothing(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R51: what an interrupted worker had stored is removed by the next claim, too."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    (stopped,) = source.claim(1)
    stopped.task(*stopped.arguments)
    stopped.fail(Category.INTERRUPTED, "the run was interrupted")
    work.all()
    assert [path.name for path in Path(house.store_url).iterdir()] == [house.value("SELECT object_key FROM item_images")]


def test_a_late_file_worker_writes_nothing(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R10: a batch file is fenced like a job: after another claim the old one can neither finish nor fail nor renew."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    (late,) = source.claim(1)
    result = late.task(*late.arguments)
    house.expire_lease("ingest_batch_files")
    assert source.claim(1)
    assert not late.renew()
    for write in (lambda: late.finish(result), lambda: late.fail(Category.DAMAGED, "late")):
        with pytest.raises(ScribeError) as caught:
            write()
        assert caught.value.category is Category.LEASE_LOST
    assert house.value("SELECT count(*) FROM item_images") == 0
    assert house.value("SELECT status FROM ingest_batch_files") == "processing"


def test_a_file_whose_workers_vanish_is_given_up(house: House, tmp_path: Path) -> None:
    """R87: a file that kills every worker ends with a category instead of going round for ever."""
    batch = house.batch({"a.png": png()}, tmp_path)
    for _ in range(3):
        assert isinstance(claim_file(house.engine, batch.id, 60, stored=False), FileClaim)
        house.expire_lease("ingest_batch_files")
    assert isinstance(claim_file(house.engine, batch.id, 60, stored=False), GivenUp)
    assert house.rows("SELECT status, error_category, attempt_count FROM ingest_batch_files") == [
        ("failed", "attempts_exhausted", 3)
    ]


def test_engine_failures_give_a_file_back(
    house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R86: a segmentor that fails is tried again a little later; its file is not lost meanwhile."""
    monkeypatch.setattr(engines, "segment", lambda _: 1 / 0)
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    work.validate()
    work.segment()
    row = house.rows("SELECT status, attempt_count, retry_after, item_image_id FROM ingest_batch_files")[0]
    assert (row.status, row.attempt_count) == ("pending", 1)
    assert row.retry_after is not None
    assert row.item_image_id is not None


def test_interruption_gives_everything_back(
    house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R86: whoever is interrupted lets go of what it holds, so that the next run need not wait for the lease."""
    batch = house.batch({"a.png": png(), "b.png": png(colour="red")}, tmp_path)
    monkeypatch.setattr("scribe_pipeline.jobs.loop.wait", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        Work(house, batch).validate()
    assert house.rows("SELECT status FROM ingest_batch_files") == [("pending",), ("pending",)]


def test_one_refused_result_stops_nobody(
    house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R86: a page that cannot be written as it is fails by itself; its neighbours are done in their first attempt."""
    outside = (line_shape(20, right=4000),)
    monkeypatch.setattr(engines, "segment", lambda picture: outside if picture.getpixel((0, 0))[0] else engines.lines)
    work = Work(house, house.batch({"bad.png": png(colour="red"), "good.png": png(colour="black")}, tmp_path))
    work.all()
    bad, good = house.rows("SELECT status, attempt_count FROM ingest_batch_files ORDER BY sequence")
    assert good == ("completed", 1)
    assert bad == ("pending", 1)


@pytest.mark.parametrize("end", ["refused", "vanished"])
def test_a_file_that_fails_for_good_leaves_nothing(house: House, engines: FakeEngines, tmp_path: Path, end: str) -> None:
    """R87: whatever its last claim had stored of it goes with it."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    house.execute("UPDATE ingest_batch_files SET max_attempts = 1")
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    (unit,) = source.claim(1)
    unit.task(*unit.arguments)
    assert len(list(Path(house.store_url).iterdir())) == 1
    if end == "refused":
        unit.fail(Category.DAMAGED, "a.png is damaged")
    else:
        house.expire_lease("ingest_batch_files")
        assert source.claim(1) == []
    assert list(Path(house.store_url).iterdir()) == []
    assert len(work.refused) == 1


def test_a_late_stored_scan_is_removed(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R10, R87: a worker that stores a scan after another has taken over removes it when its commit is refused."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    (late,) = source.claim(1)
    house.expire_lease("ingest_batch_files")
    (winner,) = source.claim(1)
    result = late.task(*late.arguments)
    winner.finish(winner.task(*winner.arguments))
    with pytest.raises(ScribeError):
        late.finish(result)
    assert [path.name for path in Path(house.store_url).iterdir()] == [house.value("SELECT object_key FROM item_images")]


def test_a_scan_that_is_stored_by_a_worker_that_dies_late_has_an_owner(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R51, R56: a worker that lost its claim may store its scan after the next one has cleared up, and die right then."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    (late,) = source.claim(1)
    key = house.value("SELECT object_key FROM ingest_batch_files")
    house.expire_lease("ingest_batch_files")
    (winner,) = source.claim(1)
    late.task(*late.arguments)
    winner.finish(winner.task(*winner.arguments))
    assert house.rows(WAITING) == [(key, len(png()), "staged", True)], "and the winner's own scan does not wait to be removed"
    image = house.value("SELECT object_key FROM item_images")
    assert {path.name for path in Path(house.store_url).iterdir()} == {key, image}


@pytest.mark.parametrize("end", ["refused", "vanished"])
def test_what_a_failed_file_stored_has_an_owner_before_it_is_removed(
    house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    """R51, R56: whoever fails a file may die before he has removed what is stored of it."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    house.execute("UPDATE ingest_batch_files SET max_attempts = 1")
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    (unit,) = source.claim(1)
    unit.task(*unit.arguments)
    (stored,) = (path.name for path in Path(house.store_url).iterdir())

    def die(*_: object) -> None:
        raise StoppedError

    monkeypatch.setattr(source, "clear", die)
    if end == "vanished":
        house.expire_lease("ingest_batch_files")
    with pytest.raises(StoppedError):
        unit.fail(Category.DAMAGED, "a.png is damaged") if end == "refused" else source.claim(1)
    assert house.value("SELECT status FROM ingest_batch_files") == "failed"
    vanished = end == "vanished"  # he may write even now
    assert house.rows(WAITING) == [(stored, len(png()), "staged" if vanished else "pending", vanished)]


def test_an_interrupt_costs_no_attempt(house: House, tmp_path: Path) -> None:
    """R86: who stops a run again and again does not use up the attempts of its files."""
    batch = house.batch({"a.png": png()}, tmp_path)
    source = ValidationSource(house.settings, batch.id, lambda _: None, lambda _: None)
    for _ in range(5):
        (unit,) = source.claim(1)
        unit.fail(Category.INTERRUPTED, "the run was interrupted")
    assert house.rows("SELECT status, attempt_count FROM ingest_batch_files") == [("pending", 0)]


def test_a_database_that_does_not_answer_loses_no_lease(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R86: a renewal that cannot reach the database is tried again; the work goes on."""
    calls: list[str] = []

    class Unit:
        task = staticmethod(time.sleep)
        arguments = (0.0,)

        def renew(self) -> bool:
            calls.append("renew")
            raise DatabaseError(Category.UNAVAILABLE, "the database does not answer")

        def progress(self, succeeded: int, failed: int) -> None:
            calls.append("progress")

        def finish(self, result: object) -> None:
            calls.append("finish")

        def fail(self, category: Category, message: str) -> None:
            calls.append("fail")

    units = [Unit()]

    class Source:
        def claim(self, limit: int) -> list[Unit]:
            return [units.pop()] if units else []

    drain([Source()], InlinePool(), 60, 60, sleep=lambda seconds: None)
    assert calls == ["renew", "finish"]


def test_no_room_for_scans_stops_the_run_and_blames_no_page(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R87: when the store takes nothing, the run says so, and the files wait as if nobody had tried them."""
    batch = house.batch({"a.png": png(), "b.png": png(colour="red")}, tmp_path)
    Path(house.store_url).parent.mkdir(parents=True, exist_ok=True)
    Path(house.store_url).write_bytes(b"a file where the folder should be")
    with pytest.raises(ScribeError, match="for scans cannot be written to") as caught:
        Work(house, batch).validate()
    assert caught.value.category is Category.UNAVAILABLE
    assert house.rows("SELECT status, attempt_count FROM ingest_batch_files") == [("pending", 0), ("pending", 0)]
