"""The cleanup worker: what it may remove, how it says so before, and how it goes on when a removal fails."""

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import event, text

from scribe_pipeline.database import DatabaseError, in_transaction
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.exports import derive_exports
from scribe_pipeline.ingest import ValidationSource
from scribe_pipeline.pages import Image, insert_image
from scribe_pipeline.storage import (
    UPLOAD,
    Blob,
    LocalBlobStore,
    Removals,
    SharedBlobStore,
    drop_stray_copies,
    hand_over_blobs,
    new_object_key,
    open_store,
    remove_due,
    stage_blobs,
    upload_remover,
)
from scribe_pipeline.storage.removal import (
    LEASE_SECONDS,
    RemovalClaim,
    claim_removal,
    confirm_removal,
    defer_removal,
    fence_removal,
)
from scribe_pipeline.workspaces import charge, read_usage
from tests.faults.schedule import locked_table
from tests.houses import FakeEngines, House, Work, png

PROBLEM = "the store does not answer"
ROW = "SELECT status, attempt_count, delete_fenced_at, storage_bytes, last_error, lease_token FROM resource_cleanup_outbox"
DUE = "UPDATE resource_cleanup_outbox SET next_attempt_at = clock_timestamp()"
DUE_FOR = """UPDATE resource_cleanup_outbox SET next_attempt_at = clock_timestamp() - :age * interval '1 second'
             WHERE resource_key = :key"""
TRIPLET = "triplet_presentation_image"


def used(house: House) -> int:
    """Used bytes, which are the same for the one workspace and for all."""
    of_all, of_one = in_transaction(house.engine, read_usage)
    assert of_all.used_bytes == of_one.used_bytes
    return of_one.used_bytes


def given_up(house: House) -> Image:
    """An image that is no more: its object waits to be removed."""
    image = house.image()
    with house.engine.begin() as connection:
        hand_over_blobs(connection, [Blob(image.workspace_id, image.object_key, image.storage_bytes)])
        connection.execute(text("DELETE FROM item_images WHERE id = :id"), {"id": image.id})
    return image


def remove(house: House) -> Removals:
    return remove_due(house.engine, {UPLOAD: open_store(house.store_url).delete})


def claim(house: House, kind: str = UPLOAD) -> RemovalClaim:
    found = claim_removal(house.engine, {kind}, LEASE_SECONDS)
    assert found is not None
    return found


def failing(category: Category = Category.TRANSPORT) -> Callable[[str], None]:
    def fail(key: str) -> None:
        raise ScribeError(category, PROBLEM)

    return fail


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


def test_an_upload_is_tried_for_ever(house: House) -> None:
    """R56, R57, R58, R77, R78: thirty failures: attempts only grow, waits double to an hour, bytes and status stay."""
    image = given_up(house)
    waits = []
    wait = "SELECT round(extract(epoch FROM next_attempt_at - updated_at)) FROM resource_cleanup_outbox"
    for number in range(1, 31):
        house.execute(DUE)
        assert remove_due(house.engine, {UPLOAD: failing()}) == Removals(deferred=1, problem=PROBLEM)
        row = house.rows(ROW)[0]
        assert (row.status, row.attempt_count, row.storage_bytes) == ("pending", number, image.storage_bytes)
        assert row.last_error == "the store does not answer"
        waits.append(int(house.value(wait)))
        assert used(house) == image.storage_bytes
    assert waits[:13] == [min(3600, 2**number) for number in range(13)]
    assert set(waits[12:]) == {3600}
    house.execute(DUE)
    assert remove(house) == Removals(removed=1)
    assert used(house) == 0


def test_a_lost_worker_is_taken_over_from(house: House) -> None:
    """R49, R56, R68: attempts grow, the fence keeps its time, the bytes count, and the one who was lost can do nothing more."""
    image = given_up(house)
    lost, tombstone = claim(house), None
    for number in range(2, 5):
        fence_removal(house.engine, lost)
        fenced = house.value("SELECT delete_fenced_at FROM resource_cleanup_outbox")
        tombstone = tombstone or fenced
        assert fenced == tombstone is not None
        assert claim_removal(house.engine, {UPLOAD}, LEASE_SECONDS) is None, "its lease has not run out"
        house.expire_lease("resource_cleanup_outbox")
        taken = claim(house)
        assert taken.attempt_count == number
        before = house.everything()
        for write in (fence_removal, confirm_removal, lambda engine, claim: defer_removal(engine, claim, "late")):
            with pytest.raises(ScribeError) as caught:
                write(house.engine, lost)
            assert caught.value.category is Category.LEASE_LOST
        assert house.everything() == before
        assert used(house) == image.storage_bytes
        lost = taken
    confirm_removal(house.engine, lost)
    assert used(house) == 0


def test_a_lost_worker_is_taken_over_from_however_often(house: House) -> None:
    """R57: an upload's attempts have no last one, even if its workers vanish every time."""
    given_up(house)
    house.execute("UPDATE resource_cleanup_outbox SET attempt_count = max_attempts")
    for _ in range(2):
        claim(house)
        house.expire_lease("resource_cleanup_outbox")
    assert remove(house) == Removals(removed=1)


@pytest.mark.parametrize("part", ["id", "attempt_count", "lease"])
def test_every_part_of_the_fence_counts(house: House, part: str) -> None:
    """R68: row, attempt and token: who has one of them wrong changes nothing."""
    for _ in range(2):
        given_up(house)
    mine, others = claim(house), claim(house)
    wrong = {"id": others.id, "attempt_count": 2, "lease": others.lease}
    before = house.everything()
    with pytest.raises(ScribeError) as caught:
        defer_removal(house.engine, replace(mine, **{part: wrong[part]}), "wrong")
    assert caught.value.category is Category.LEASE_LOST
    assert house.everything() == before


@pytest.mark.parametrize("write", ["kept", "fence", "confirm", "defer"])
def test_late_writes_of_each_kind_change_nothing(house: House, write: str) -> None:
    """R49, R68: from a worker whose row somebody else holds by now nothing is taken."""
    image = house.image() if write == "kept" else given_up(house)
    if write == "kept":
        with house.engine.begin() as connection:
            hand_over_blobs(connection, [Blob(image.workspace_id, image.object_key, image.storage_bytes)])
    late = claim(house)
    if write == "confirm":
        fence_removal(house.engine, late)
    house.expire_lease("resource_cleanup_outbox")
    winner = claim(house)
    before = house.everything()
    writes: dict[str, Callable[[], object]] = {
        "confirm": lambda: confirm_removal(house.engine, late),
        "defer": lambda: defer_removal(house.engine, late, "late"),
    }
    with pytest.raises(ScribeError) as caught:
        writes.get(write, lambda: fence_removal(house.engine, late))()
    assert caught.value.category is Category.LEASE_LOST
    assert house.everything() == before
    assert fence_removal(house.engine, winner) is (write != "kept")


def test_a_claim_waits_for_nobody(house: House, impatient: House) -> None:
    """R49: a row that somebody is just taking is passed by."""
    first, second = given_up(house), given_up(house)
    house.execute(DUE_FOR, age=60, key=first.object_key)
    with house.engine.begin() as connection:
        connection.exec_driver_sql(f"SELECT FROM resource_cleanup_outbox WHERE resource_key = '{first.object_key}' FOR UPDATE")
        assert claim(house).resource_key == second.object_key
        assert claim_removal(house.engine, {UPLOAD}, LEASE_SECONDS) is None


def test_exports_of_others_are_in_nobodys_way(house: House) -> None:
    """R65: it is this very object that has to be referred to."""
    image = house.page()
    house.job(image)
    house.complete(house.claim())
    derive_exports(house.engine, open_store(house.store_url), image.id, 2)
    given_up(house)
    assert remove(house) == Removals(removed=1)


def test_a_removal_that_is_taken_over_meanwhile_goes_on_with_the_next(house: House) -> None:
    """R49: whoever took too long leaves that one to the other, and sees to the rest."""
    slow, other = sorted((given_up(house).object_key, given_up(house).object_key))
    house.execute("UPDATE resource_cleanup_outbox SET next_attempt_at = created_at WHERE resource_key = :key", key=slow)
    house.execute("UPDATE resource_cleanup_outbox SET next_attempt_at = clock_timestamp() WHERE resource_key = :key", key=other)
    taken: list[RemovalClaim] = []

    def hang(key: str) -> None:
        if not taken:
            house.expire_lease("resource_cleanup_outbox")
            taken.append(claim(house))

    assert remove_due(house.engine, {UPLOAD: hang}) == Removals(removed=1)
    assert [row.attempt_count for row in house.rows(ROW)] == [2]


def triplet(house: House, max_attempts: int = 3) -> None:
    house.execute(
        """INSERT INTO resource_cleanup_outbox (id, workspace_id, kind, resource_key, max_attempts)
           SELECT gen_random_uuid(), id, 'triplet_presentation_image', gen_random_uuid()::text, :attempts FROM workspaces""",
        attempts=max_attempts,
    )


def test_other_kinds_are_tried_a_bounded_number_of_times(house: House) -> None:
    """R50, R59: after its last attempt the row has failed, and stays to be seen; nobody claims it any more."""
    triplet(house)
    for number in range(1, 4):
        house.execute(DUE)
        last = number == 3
        expected = Removals(deferred=int(not last), failed=int(last), problem=PROBLEM)
        assert remove_due(house.engine, {TRIPLET: failing()}) == expected
    house.execute(DUE)
    assert remove_due(house.engine, {TRIPLET: failing()}) == Removals()
    assert [(row.status, row.attempt_count, row.last_error) for row in house.rows(ROW)] == [
        ("failed", 3, "the store does not answer")
    ]


def test_another_kind_whose_worker_vanishes_at_the_last_attempt_has_failed(house: House) -> None:
    """R59: a worker that dies each time does not make the row go round for ever; before the last time it is taken over."""
    triplet(house, max_attempts=2)
    for _ in range(2):
        claim(house, TRIPLET)
        house.expire_lease("resource_cleanup_outbox")
    assert claim_removal(house.engine, {TRIPLET}, LEASE_SECONDS) is None
    assert remove_due(house.engine, {TRIPLET: failing()}) == Removals(failed=1)
    assert [(row.status, row.attempt_count) for row in house.rows(ROW)] == [("failed", 2)]


def test_only_what_is_fenced_is_confirmed(house: House) -> None:
    """R64, R70: without a fence nothing of an upload is over, be it an export that counts no bytes."""
    image = house.image()
    with house.engine.begin() as connection:
        hand_over_blobs(connection, [Blob(image.workspace_id, new_object_key("0" * 64, "xml"), 0)])
    held = claim(house)
    with pytest.raises(ScribeError) as caught:
        confirm_removal(house.engine, held)
    assert caught.value.category is Category.LEASE_LOST
    assert fence_removal(house.engine, held)
    confirm_removal(house.engine, held)


def test_another_kind_is_taken_over_while_it_has_attempts(house: House) -> None:
    """R49, R59: a worker that vanished once is no reason to give up."""
    triplet(house, max_attempts=2)
    claim(house, TRIPLET)
    house.expire_lease("resource_cleanup_outbox")
    assert remove_due(house.engine, {TRIPLET: lambda key: None}) == Removals(removed=1)


def test_only_those_who_vanished_are_given_up(house: House) -> None:
    """R59: a worker that is at its last attempt is waited for."""
    triplet(house, max_attempts=1)
    claim(house, TRIPLET)
    assert remove_due(house.engine, {TRIPLET: failing()}) == Removals()
    assert [(row.status, row.attempt_count) for row in house.rows(ROW)] == [("processing", 1)]


def test_kinds_that_nobody_removes_wait(house: House) -> None:
    """R59: where there is no such server, its rows use up no attempt."""
    triplet(house)
    assert remove(house) == Removals()
    assert [(row.status, row.attempt_count) for row in house.rows(ROW)] == [("pending", 0)]
    assert remove_due(house.engine, {TRIPLET: lambda key: None}) == Removals(removed=1)
    assert house.rows(ROW) == []


def test_a_store_that_is_away_is_asked_once_a_pass(house: House) -> None:
    """R49: the others wait without an attempt; when it is back, all goes by itself."""
    for _ in range(3):
        given_up(house)
    triplet(house)
    removers = {UPLOAD: failing(Category.UNAVAILABLE), TRIPLET: lambda key: None}
    assert remove_due(house.engine, removers) == Removals(removed=1, deferred=1, problem=PROBLEM)
    assert sorted(row.attempt_count for row in house.rows(ROW)) == [0, 0, 1]
    house.execute(DUE)
    assert remove(house) == Removals(removed=3)


def test_the_longest_due_is_first_and_nothing_is_done_twice(house: House) -> None:
    """R61: several workers at once share the rows; the oldest goes first."""
    keys = [given_up(house).object_key for _ in range(12)]
    for age, key in enumerate(keys):
        house.execute(DUE_FOR, age=age + 1, key=key)
    removed: list[str] = []
    workers = [threading.Thread(target=remove_due, args=(house.engine, {UPLOAD: removed.append})) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sorted(removed) == sorted(keys)
    assert used(house) == 0


def test_the_order_of_one_worker(house: House) -> None:
    """R61: by how long they have been due."""
    ages = {given_up(house).object_key: age for age in (5, 40, 3)}
    for key, age in ages.items():
        house.execute(DUE_FOR, age=age, key=key)
    removed: list[str] = []
    remove_due(house.engine, {UPLOAD: removed.append})
    assert all(ages[first] > ages[second] for first, second in pairwise(removed)) and len(removed) == 3


def test_a_pass_that_is_stopped_ends(house: House) -> None:
    """R49: between two removals; the rest waits for the next pass."""
    for _ in range(3):
        given_up(house)
    heard: list[str] = []
    done = remove_due(house.engine, {UPLOAD: heard.append}, stopped=lambda: len(heard) == 2)
    assert (done, len(heard)) == (Removals(removed=2), 2)


def test_a_place_that_is_empty_and_should_not_be_confirms_nothing(house: House) -> None:
    """R70, R78: a disk that is not mounted leaves an empty folder; once it is back, the removal is done."""
    kept, gone = house.image(), given_up(house)
    folder, elsewhere = Path(house.store_url), Path(house.store_url).with_name("unmounted")
    folder.rename(elsewhere)
    folder.mkdir()
    remover = upload_remover(house.engine, open_store(house.store_url))
    done = remove_due(house.engine, {UPLOAD: remover})
    assert (done.removed, done.deferred) == (0, 1) and "its disk mounted?" in str(done.problem)
    assert used(house) == kept.storage_bytes + gone.storage_bytes
    folder.rmdir()
    elsewhere.rename(folder)
    house.execute(DUE)
    assert remove_due(house.engine, {UPLOAD: remover}) == Removals(removed=1)
    assert [path.name for path in folder.iterdir()] == [kept.object_key]


def test_an_object_that_was_never_written_is_removed_from_an_empty_place(house: House) -> None:
    """R74: where there is no image, nothing has to be there."""
    (Path(house.store_url) / given_up(house).object_key).unlink()
    remover = upload_remover(house.engine, open_store(house.store_url))
    assert remove_due(house.engine, {UPLOAD: remover}) == Removals(removed=1)


def test_copies_of_what_another_machine_has_removed_go_too(house: House, tmp_path: Path) -> None:
    """R74: each machine's folder follows the bucket; what has an owner, be it a staged row, stays in it."""
    bucket = LocalBlobStore(tmp_path / "bucket")
    here = SharedBlobStore(LocalBlobStore(Path(house.store_url)), bucket)
    there = SharedBlobStore(LocalBlobStore(tmp_path / "there"), bucket)
    kept, gone, staged = house.image(), given_up(house), new_object_key("0" * 64, "png")
    for key in (kept.object_key, gone.object_key):
        bucket.write(key, png(), "test")
    here.local.write(staged, b"half a page", "test")
    with house.engine.begin() as connection:
        stage_blobs(connection, [Blob(kept.workspace_id, staged, 0)], 3600)
    assert drop_stray_copies(house.engine, here) == 0
    assert remove_due(house.engine, {UPLOAD: there.delete}) == Removals(removed=1)
    assert here.local.exists(gone.object_key) and not bucket.exists(gone.object_key)
    assert drop_stray_copies(house.engine, here) == 1
    assert {copy.key for copy in here.local.stored()} == {kept.object_key, staged}
    assert drop_stray_copies(house.engine, LocalBlobStore(tmp_path / "there")) == 0


def test_a_row_that_the_database_does_not_let_go_stops_no_other(house: House) -> None:
    """R49, R84: a counter that is wrong is for the audit to tell; what can be removed is removed."""
    first, second = given_up(house), given_up(house)
    house.execute(DUE_FOR, age=60, key=first.object_key)
    house.execute("UPDATE storage_quota_usage SET used_bytes = :size", size=second.storage_bytes - 1)
    done = remove(house)
    assert (done.removed, done.deferred) == (0, 2) and "storage_quota_usage_used_range" in str(done.problem)
    assert [row.status for row in house.rows(ROW)] == ["pending", "pending"]
    house.execute("UPDATE storage_quota_usage SET used_bytes = :size", size=2 * second.storage_bytes)
    house.execute(DUE)
    assert remove(house) == Removals(removed=2)


def test_a_reason_is_cut_to_its_room(house: House) -> None:
    """R48: a long sentence, in whatever script, leaves a shorter one."""
    given_up(house)
    defer_removal(house.engine, claim(house), "ä" * 100)
    assert house.rows(ROW)[0].last_error == "ä" * 64


def test_only_what_is_an_uploads_name_is_ever_removed(house: House) -> None:
    """R76: no row can name anything else in the store's folder, or outside it."""
    owner = UUID(str(house.value("SELECT id FROM workspaces")))
    for name in ("../../etc/passwd", ".scribe-upload-x", "0" * 64, new_object_key("0" * 64, "png").upper()):
        with pytest.raises(DatabaseError, match="resource_cleanup_outbox_upload_key_form"):
            in_transaction(house.engine, lambda connection, name=name: hand_over_blobs(connection, [Blob(owner, name, 0)]))
