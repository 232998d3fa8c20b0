"""The cleanup worker: what it may remove, how it says so before, and what it has to do with whoever refers to an object."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import event

from scribe_pipeline.database import DatabaseError, in_transaction
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.exports import derive_exports
from scribe_pipeline.ingest import ValidationSource
from scribe_pipeline.pages import Image, insert_image
from scribe_pipeline.storage import (
    UPLOAD,
    Blob,
    Removals,
    hand_over_blobs,
    open_store,
    remove_due,
)
from scribe_pipeline.storage.removal import (
    confirm_removal,
    defer_removal,
    fence_removal,
)
from scribe_pipeline.workspaces import charge
from tests.faults.schedule import locked_table
from tests.houses import FakeEngines, House, png
from tests.store.removals import DUE, ROW, claim, failing, given_up, remove, used
from tests.work import Work


def test_a_removal_that_succeeds_forgets_the_row_and_frees_the_bytes_once(house: House) -> None:
    """R70, R74: the object, the row and its bytes go; a second pass finds nothing."""
    kept, image = house.image(), given_up(house)
    assert used(house) == kept.storage_bytes + image.storage_bytes
    assert remove(house) == Removals(removed=1)
    assert [path.name for path in Path(house.store_url).iterdir()] == [kept.object_key]
    assert house.rows(ROW) == []
    assert used(house) == kept.storage_bytes
    assert remove(house) == Removals()


def test_an_object_that_is_not_there_is_removed(house: House) -> None:
    """R74: whoever removed it before and died has done it."""
    (Path(house.store_url) / given_up(house).object_key).unlink()
    assert remove(house) == Removals(removed=1)
    assert used(house) == 0


def test_identical_bytes_are_removed_apart(house: House) -> None:
    """R52: removing one of two objects with the same bytes leaves the other readable."""
    kept, gone = house.image(), given_up(house)
    assert kept.sha256 == gone.sha256
    remove(house)
    assert open_store(house.store_url).read(kept.object_key) == png()


def test_the_fence_is_committed_before_the_object_is_touched(house: House) -> None:
    """R64: at the moment of the removal another session sees the fence."""
    image, seen = given_up(house), []

    def look(key: str) -> None:
        seen.append((key, house.value("SELECT delete_fenced_at IS NOT NULL FROM resource_cleanup_outbox")))

    remove_due(house.engine, {UPLOAD: look})
    assert seen == [(image.object_key, True)]


def test_what_is_referred_to_is_kept(house: House) -> None:
    """R65: an image holds the object: the row goes, the object and its bytes stay, nothing is fenced."""
    image = house.image()
    with house.engine.begin() as connection:
        hand_over_blobs(connection, [Blob(image.workspace_id, image.object_key, image.storage_bytes)])
    before = used(house)
    assert remove(house) == Removals(referenced=1)
    assert house.rows(ROW) == []
    assert open_store(house.store_url).read(image.object_key) == png()
    assert used(house) == before


def test_an_export_that_is_referred_to_is_kept(house: House) -> None:
    """R65: exports are kept in the same store, and are objects like the others."""
    image = house.page()
    house.job(image)
    house.complete(house.claim())
    store = open_store(house.store_url)
    (export, *_) = derive_exports(house.engine, store, image.id, 2).exports
    with house.engine.begin() as connection:
        hand_over_blobs(connection, [Blob(image.workspace_id, export.object_key, 0)])
    assert remove(house) == Removals(referenced=1)
    assert store.read(export.object_key)


@pytest.mark.parametrize("guard", ["global", "workspace"])
@pytest.mark.parametrize("step", ["fence", "confirm"])
def test_each_step_takes_both_guards(house: House, impatient: House, guard: str, step: str) -> None:
    """R63: whoever holds one of the two counters holds up the worker, before the fence and before bytes are given back."""
    given_up(house)
    held = claim(house)
    if step == "confirm":
        fence_removal(house.engine, held)
    scope = "scope = 'global'" if guard == "global" else "scope <> 'global'"
    with house.engine.begin() as connection:
        connection.exec_driver_sql(f"SELECT FROM storage_quota_usage WHERE {scope} FOR UPDATE")
        with pytest.raises(DatabaseError, match="55P03"):
            (fence_removal if step == "fence" else confirm_removal)(house.engine, held)
    assert house.value("SELECT delete_fenced_at IS NULL FROM resource_cleanup_outbox") is (step == "fence")


def test_a_confirmation_takes_the_guards_first(house: House) -> None:
    """R63, R70: both counters, that of all first, are locked before the row goes."""
    given_up(house)
    held = claim(house)
    fence_removal(house.engine, held)
    sent: list[str] = []
    event.listen(house.engine, "before_cursor_execute", lambda *args: sent.append(locked_table(args[2])[0]))
    confirm_removal(house.engine, held)
    assert sent == ["SELECT storage_quota_usage FOR UPDATE", "DELETE FROM resource_cleanup_outbox", "UPDATE storage_quota_usage"]


def test_the_fence_waits_for_whoever_holds_the_image(house: House, impatient: House) -> None:
    """R63: current references are locked, so that none changes while it is asked whether there are any."""
    image = house.image()
    with house.engine.begin() as connection:
        hand_over_blobs(connection, [Blob(image.workspace_id, image.object_key, image.storage_bytes)])
    held = claim(house)
    with house.engine.begin() as connection:
        connection.exec_driver_sql("SELECT FROM item_images FOR UPDATE")
        with pytest.raises(DatabaseError, match="55P03"):
            fence_removal(house.engine, held)
    assert not fence_removal(house.engine, held)


def referring(house: House, image: Image) -> Iterator[None]:
    """A transaction that makes an image of the object, as an upload's commit does: step by step."""
    with house.engine.begin() as connection:
        connection.exec_driver_sql("SELECT FROM storage_quota_usage ORDER BY scope <> 'global' FOR UPDATE")
        yield
        insert_image(connection, image)
        charge(connection, image.workspace_id, used=image.storage_bytes)
        yield


def test_a_reference_that_comes_first_keeps_the_object(house: House) -> None:
    """R69: while the reference is being made the worker waits; then it finds it, and removes nothing."""
    image = given_up(house)
    held, found = claim(house), []
    steps = referring(house, image)
    next(steps)
    waiting = threading.Thread(target=lambda: found.append(fence_removal(house.engine, held)))
    waiting.start()
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    while not house.value(blocked):
        pass
    assert [*steps] == [None]
    waiting.join(30)
    assert found == [False]
    assert house.rows(ROW) == []
    # the row counted the bytes, and the reference did: both for the one object
    in_transaction(house.engine, lambda connection: charge(connection, image.workspace_id, used=-image.storage_bytes))


def test_a_reference_that_comes_after_the_fence_is_refused(house: House) -> None:
    """R67, R69: from the fence on nothing refers to the object, before its removal and while it is tried again."""
    image = given_up(house)
    held = claim(house)
    assert fence_removal(house.engine, held)

    def refer() -> None:
        in_transaction(house.engine, lambda connection: insert_image(connection, image))

    for _ in range(2):
        with pytest.raises(DatabaseError) as caught:
            refer()
        assert caught.value.sqlstate == "23001"
        defer_removal(house.engine, held, "the store does not answer")
        house.execute(DUE)
        held = claim(house)
    assert house.rows("SELECT FROM item_images") == []


def test_a_commit_that_comes_after_the_fence_stores_the_scan_anew(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R67, R73: an upload that took longer than its reservation is refused its object, and becomes a draft from another one."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    (late,) = source.claim(1)
    result = late.task(*late.arguments)
    house.execute(DUE)
    held = claim(house)
    with pytest.raises(ScribeError, match="its removal has begun") as caught:
        late.finish(result)
    assert caught.value.category is Category.TIMEOUT
    assert house.rows("SELECT FROM item_images") == []
    late.fail(caught.value.category, caught.value.message)
    assert fence_removal(house.engine, held)
    open_store(house.store_url).delete(held.resource_key)
    confirm_removal(house.engine, held)
    house.execute("UPDATE ingest_batch_files SET retry_after = NULL")
    assert work.all().status == "completed"
    assert house.value("SELECT object_key FROM item_images") != held.resource_key
    assert used(house) == len(png())


def test_what_is_staged_is_removed_only_after_its_deadline(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R73, R74: a worker that vanished leaves its object to the reservation's deadline, and then to the cleanup worker."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    (vanished,) = source.claim(1)
    vanished.task(*vanished.arguments)
    wait = "SELECT round(extract(epoch FROM next_attempt_at - clock_timestamp()) / 60) FROM resource_cleanup_outbox"
    assert house.value(wait) == round(house.settings.reservation_seconds / 60)
    assert remove(house) == Removals()
    house.execute("UPDATE resource_cleanup_outbox SET next_attempt_at = clock_timestamp() + interval '1 minute'")
    assert remove(house) == Removals()
    house.execute(DUE)
    assert remove(house) == Removals(removed=1)
    assert [*Path(house.store_url).iterdir()] == []


def test_a_write_that_failed_is_compensated_now_and_later(
    house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R54, R55: what a failed attempt has stored goes at once; where that fails too, the outbox has it."""
    store = type(open_store(house.store_url))
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    with monkeypatch.context() as broken:
        (unit,) = source.claim(1)
        unit.task(*unit.arguments)
        broken.setattr(store, "delete", lambda _store, key: failing(Category.UNAVAILABLE)(key))
        unit.fail(Category.TIMEOUT, "it took too long")
        assert len([*Path(house.store_url).iterdir()]) == 1
    later = "SELECT status, round(extract(epoch FROM next_attempt_at - updated_at)) FROM resource_cleanup_outbox"
    assert house.rows(later) == [("pending", 60)], "by then a write whose answer never came has come to something"
    house.execute("UPDATE ingest_batch_files SET retry_after = NULL")
    (again,) = source.claim(1)
    again.task(*again.arguments)
    again.fail(Category.TIMEOUT, "it took too long")
    assert [*Path(house.store_url).iterdir()] == []
    assert used(house) == 2 * len(png()), "both count until somebody has seen that they are gone"
    house.execute(DUE)
    assert remove(house).removed == 2
    assert used(house) == 0
