"""The cleanup worker: how it goes on when a removal fails, when it dies, and when there is much to remove."""

import threading
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from uuid import UUID

import pytest

from scribe_pipeline.database import DatabaseError, in_transaction
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.exports import derive_exports
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
from tests.houses import House, png
from tests.store.removals import DUE, DUE_FOR, PROBLEM, ROW, TRIPLET, claim, failing, given_up, remove, triplet, used


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
