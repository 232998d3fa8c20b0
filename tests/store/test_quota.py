"""Quotas: room is promised before it is used, used as long as an object may be there, and given back by its removal alone."""

import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import event

from scribe_pipeline.database import DatabaseError, in_transaction
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import Batch, ValidationSource, cancel_batch
from scribe_pipeline.storage import UPLOAD, open_store, remove_due
from scribe_pipeline.workspaces import read_usage, reserve, set_limit, sweep_reservations
from tests.faults.schedule import locked_table
from tests.houses import FakeEngines, House, png, stopped_after
from tests.work import Work

SIZE = len(png())
COUNTERS = "SELECT used_bytes, reserved_bytes FROM storage_quota_usage ORDER BY scope = 'global'"
EXPIRE = "UPDATE storage_reservations SET expires_at = clock_timestamp() - interval '1 second'"


def counters(house: House) -> tuple[int, int]:
    """Used and reserved bytes, which are the same for the one workspace and for all."""
    workspace, everybody = house.rows(COUNTERS)
    assert workspace == everybody
    return tuple(workspace)  # type: ignore[return-value]


def limit(house: House, size: int, workspace: str | None = "default") -> None:
    set_limit(house.engine, workspace, size, Operator("test"))


def source_of(work: Work) -> ValidationSource:
    return ValidationSource(work.house.settings, work.batch.id, lambda _: None, work.refused.append)


def test_room_goes_from_reserved_to_used(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R71, R72: a batch reserves; staging moves the bytes to a row that holds the key; the commit leaves them with the image."""
    work = Work(house, house.batch({"a.png": png(), "b.png": png()}, tmp_path))
    assert counters(house) == (0, 2 * SIZE)
    (unit,) = source_of(work).claim(1)
    assert counters(house) == (SIZE, SIZE)
    key = house.value("SELECT resource_key FROM storage_reservations WHERE resource_key IS NOT NULL")
    assert house.rows("SELECT resource_key, status, storage_bytes FROM resource_cleanup_outbox") == [(key, "staged", SIZE)]
    unit.finish(unit.task(*unit.arguments))
    assert counters(house) == (SIZE, SIZE)
    assert house.rows("SELECT object_key FROM item_images") == [(key,)]
    assert house.rows("SELECT FROM resource_cleanup_outbox") == []
    assert work.all().status == "completed"
    assert counters(house) == (2 * SIZE, 0)
    assert house.rows("SELECT FROM storage_reservations") == []


def steps_of(house: House, tmp_path: Path, step: str) -> Callable[[], object]:
    """A step of an upload, ready to be taken."""
    batch = house.batch({"a.png": png()}, tmp_path)
    source = source_of(Work(house, batch))
    if step in ("commit", "fail"):
        (unit,) = source.claim(1)
        result = unit.task(*unit.arguments)
        return partial(unit.finish, result) if step == "commit" else partial(unit.fail, Category.DAMAGED, "damaged")
    house.execute(EXPIRE)
    steps: dict[str, Callable[[], object]] = {
        "request": lambda: house.batch({"b.png": png()}, tmp_path),
        "cancel": lambda: cancel_batch(house.engine, batch.id, Operator("test")),
        "stage": lambda: source.claim(1),
        "sweep": lambda: sweep_reservations(house.engine),
    }
    return steps[step]


STEPS = ["request", "stage", "commit", "fail", "cancel", "sweep"]


@pytest.mark.parametrize("scope", ["global", "workspace"])
@pytest.mark.parametrize("step", STEPS)
def test_each_step_of_an_upload_takes_both_guards(
    house: House, impatient: House, engines: FakeEngines, tmp_path: Path, step: str, scope: str
) -> None:
    """R63, R66: whoever holds one of the two counters holds up each step that changes who owns an object, or what is promised."""
    take = steps_of(house, tmp_path, step)
    with house.engine.begin() as connection:
        condition = "scope = 'global'" if scope == "global" else "scope <> 'global'"
        connection.exec_driver_sql(f"SELECT FROM storage_quota_usage WHERE {condition} FOR UPDATE")
        with pytest.raises(DatabaseError, match="55P03"):
            take()


@pytest.mark.parametrize("step", STEPS)
def test_each_step_of_an_upload_takes_the_guards_first(house: House, engines: FakeEngines, tmp_path: Path, step: str) -> None:
    """R63, R66: in each transaction that changes a counter, both are locked, that of all first, before any other row."""
    take, first = steps_of(house, tmp_path, step), {}

    def note(connection: Any, _cursor: object, statement: str, *_: object) -> None:
        words, table = locked_table(statement)
        if table is not None:
            first.setdefault(connection.get_transaction(), []).append(words)

    event.listen(house.engine, "before_cursor_execute", note)
    take()
    event.remove(house.engine, "before_cursor_execute", note)
    charged = [words for words in first.values() if "UPDATE storage_quota_usage" in words or step in ("commit", "fail")]
    assert charged and all(words[0] == "SELECT storage_quota_usage FOR UPDATE" for words in charged)


def test_nothing_is_written_before_its_row_is_committed(
    house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R71: at the first write the object's row is there for everybody to see, and nothing of its bytes is reserved any more."""
    seen = []

    def look(_store: object, key: str, data: bytes, _claim: str) -> None:
        seen.append(house.rows("SELECT status, storage_bytes FROM resource_cleanup_outbox WHERE resource_key = :key", key=key))
        seen.append(counters(house))

    monkeypatch.setattr("scribe_pipeline.storage.blobs.LocalBlobStore.write", look)
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    (unit,) = source_of(work).claim(1)
    unit.task(*unit.arguments)
    assert seen == [[("staged", SIZE)], (SIZE, 0)]


@pytest.mark.parametrize("whose", ["default", None])
def test_a_batch_that_does_not_fit_is_refused_whole(house: House, tmp_path: Path, whose: str | None) -> None:
    """R78: the sentence says what is used, reserved and waiting to be removed; nothing is left of the request."""
    image = house.image()
    limit(house, image.storage_bytes + 2 * SIZE - 1, whose)
    before = house.everything()
    with pytest.raises(ScribeError) as caught:
        house.batch({"a.png": png(), "b.png": png()}, tmp_path)
    assert caught.value.category is Category.UNAVAILABLE
    who = "the workspace default" if whose else "all workspaces together"
    assert who in caught.value.message
    used = f"{image.storage_bytes:,} bytes are used (0 bytes of it waits to be removed, see scribe dispatch) and 0 bytes reserved"
    assert used in caught.value.message
    assert house.everything() == before
    limit(house, image.storage_bytes + 2 * SIZE, whose)
    assert house.batch({"a.png": png(), "b.png": png()}, tmp_path)


def test_the_same_request_reserves_once(house: House, tmp_path: Path) -> None:
    """R78: naming the same files again takes no more room; starting anew does."""
    for again in (False, False, True):
        house.batch({"a.png": png()}, tmp_path, again=again)
    assert counters(house) == (0, 2 * SIZE)


def test_two_requests_do_not_find_the_same_room(house: House, tmp_path: Path) -> None:
    """R63, R78: requests that race are let in one after the other, and as many as fit."""
    limit(house, 3 * SIZE)
    made: list[Batch] = []
    refused: list[ScribeError] = []

    def ask(number: int) -> None:
        try:
            made.append(house.batch({"a.png": png(colour=f"#00000{number}")}, tmp_path / str(number)))
        except ScribeError as error:
            refused.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    used = sum(house.value("SELECT size_bytes FROM ingest_batch_files WHERE batch_id = :id", id=batch.id) for batch in made)
    assert counters(house) == (0, used)
    assert used <= 3 * SIZE < used + SIZE
    assert len(made) + len(refused) == 8 and {error.category for error in refused} == {Category.UNAVAILABLE}


def test_another_workspace_has_its_own_room(house: House, tmp_path: Path) -> None:
    """R78: a workspace that is full is in nobody's way."""
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'other')")
    limit(house, 0)
    assert house.image(workspace="other")
    rows = {usage.workspace: usage for usage in in_transaction(house.engine, read_usage)}
    assert [*rows] == [None, "default", "other"]
    assert rows["default"].used_bytes == 0 and rows["other"].used_bytes == rows[None].used_bytes > 0


def test_a_file_that_fails_gives_its_room_back(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R54, R70: what was reserved at once; what was staged when its object is confirmed to be gone."""
    work = Work(house, house.batch({"no.png": b"no picture", "broken.png": png()[:300]}, tmp_path))
    work.validate()
    assert len(work.refused) == 2
    assert counters(house) == (300, 0), "the broken one was staged"
    assert remove_due(house.engine, {UPLOAD: open_store(house.store_url).delete}).removed == 1
    assert counters(house) == (0, 0)


def test_a_canceled_batch_gives_its_reservations_back(house: House, tmp_path: Path) -> None:
    """R23, R78: those of its files that nobody has begun; another batch keeps its own."""
    batch = house.batch({"a.png": png(), "b.png": png()}, tmp_path)
    house.batch({"c.png": png()}, tmp_path)
    assert source_of(Work(house, batch)).claim(1)
    cancel_batch(house.engine, batch.id, Operator("test"))
    assert counters(house) == (SIZE, SIZE)


@pytest.mark.parametrize("bound", [False, True])
def test_a_reservation_counts_until_it_is_swept(house: House, engines: FakeEngines, tmp_path: Path, bound: bool) -> None:
    """R73: its time makes it eligible, no more; what is bound to an object is counted by the object's row."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    if bound:
        assert source_of(work).claim(1)
    before = counters(house)
    sweep_reservations(house.engine)
    assert len(house.rows("SELECT FROM storage_reservations")) == 1
    house.execute(EXPIRE)
    assert counters(house) == before
    sweep_reservations(house.engine)
    assert house.rows("SELECT FROM storage_reservations") == []
    assert counters(house) == ((SIZE, 0) if bound else (0, 0))
    house.expire_lease("ingest_batch_files")
    assert work.all().status == "completed", "a file without a reservation takes what room there is"
    assert len(house.rows("SELECT FROM item_images")) == 1


def test_reservations_are_swept_of_all_workspaces_and_some_at_a_time(
    house: House, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R73: each workspace by itself, so that its counters are locked in their order; the rest comes with the next pass."""
    monkeypatch.setattr("scribe_pipeline.workspaces.quota._SWEPT_AT_ONCE", 2)
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'other')")
    batch = house.batch({f"{number}.png": png() for number in range(3)}, tmp_path)
    other = house.value("SELECT id FROM workspaces WHERE name = 'other'")
    mine = house.value("SELECT workspace_id FROM ingest_batches")
    house.execute("UPDATE ingest_batch_files SET status = 'canceled'")
    house.execute(EXPIRE)
    with house.engine.begin() as connection:
        connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        connection.exec_driver_sql("UPDATE storage_reservations SET workspace_id = %s WHERE sequence = 3", (other,))
    scopes = "UPDATE storage_quota_usage SET reserved_bytes = :size WHERE scope = :scope"
    house.execute(scopes, size=SIZE, scope=str(other))
    house.execute(scopes, size=2 * SIZE, scope=str(mine))
    sweep_reservations(house.engine)
    assert house.value("SELECT sum(reserved_bytes) FROM storage_quota_usage") == 0
    assert batch and house.rows("SELECT FROM storage_reservations") == []


def test_no_room_at_staging_blames_no_file(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R78: a file whose reservation has gone and for which there is no room waits; with room it becomes a draft."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    house.execute(EXPIRE)
    sweep_reservations(house.engine)
    limit(house, SIZE - 1)
    source = source_of(work)
    assert source.claim(1) == []
    assert source.refusal is not None and "there is no room" in source.refusal.message
    assert house.rows("SELECT status, attempt_count, object_key FROM ingest_batch_files") == [("pending", 0, None)]
    assert not any(Path(house.store_url).iterdir())
    limit(house, SIZE)
    assert source.claim(1) == [], "it is asked for again in a minute"
    house.execute("UPDATE ingest_batch_files SET retry_after = clock_timestamp()")
    assert work.all().status == "completed"


def test_a_file_without_room_holds_up_no_other(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R78: what has room reserved is stored, though it comes later."""
    work = Work(house, house.batch({"a.png": png(), "b.png": png()}, tmp_path))
    house.execute(f"{EXPIRE} WHERE sequence = 1")
    sweep_reservations(house.engine)
    limit(house, SIZE)
    source = source_of(work)
    (unit,) = source.claim(1)
    unit.finish(unit.task(*unit.arguments))
    assert source.claim(1) == [] and source.refusal is not None
    assert house.rows("SELECT sequence FROM item_images") == [(2,)]


def test_a_reservation_is_its_files_own(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R71: binding and releasing one file's leaves those of its neighbours and of other batches alone."""
    first = house.batch({"no.png": b"no picture", "b.png": png()}, tmp_path)
    second = house.batch({"c.png": png()}, tmp_path)
    assert source_of(Work(house, second)).claim(1)
    (unit,) = source_of(Work(house, first)).claim(1)
    unit.fail(Category.UNSUPPORTED_TYPE, "no.png is no picture")
    left = "SELECT batch_id, sequence, resource_key IS NULL FROM storage_reservations ORDER BY created_at"
    assert house.rows(left) == [(first.id, 2, True), (second.id, 1, False)]
    assert counters(house) == (SIZE, SIZE)


def test_a_second_object_of_a_file_takes_room_of_its_own(house: House, tmp_path: Path) -> None:
    """R78: what a lost worker may have stored counts, beside what the next one stores."""
    source = source_of(Work(house, house.batch({"a.png": png()}, tmp_path)))
    for number in (1, 2):
        assert source.claim(1)
        assert counters(house) == (number * SIZE, 0)
        house.expire_lease("ingest_batch_files")
    assert len(house.rows("SELECT FROM storage_reservations")) == 1


def test_a_file_that_fails_gives_up_its_own_object(house: House, tmp_path: Path) -> None:
    """R55: those that others are writing stay staged."""
    source = source_of(Work(house, house.batch({"a.png": png(), "b.png": png()}, tmp_path)))
    (failed,), (other,) = source.claim(1), source.claim(1)
    failed.fail(Category.DAMAGED, "a.png is damaged")
    keys = {row.status: row.resource_key for row in house.rows("SELECT status, resource_key FROM resource_cleanup_outbox")}
    assert keys == {"pending": failed.arguments[3], "staged": other.arguments[3]}


def test_only_what_has_expired_is_swept(house: House, tmp_path: Path) -> None:
    """R73: a reservation whose time is not over is still promised."""
    house.batch({"a.png": png(), "b.png": png()}, tmp_path)
    house.execute(f"{EXPIRE} WHERE sequence = 2")
    sweep_reservations(house.engine)
    assert house.rows("SELECT sequence FROM storage_reservations") == [(1,)]
    assert counters(house) == (0, SIZE)


def test_requests_that_race_for_the_same_batch_reserve_once(house: House, tmp_path: Path) -> None:
    """R78, R94: both have seen that there is no such batch; one makes it, and reserves."""
    found: list[Batch] = []
    ask = [threading.Thread(target=lambda: found.append(house.batch({"a.png": png()}, tmp_path))) for _ in range(2)]
    blocked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    with house.engine.begin() as connection:
        connection.exec_driver_sql("SELECT FROM storage_quota_usage FOR UPDATE")
        for thread in ask:
            thread.start()
        while house.value(blocked) < 2:
            pass
    for thread in ask:
        thread.join()
    assert len(found) == 2 and len(set(found)) == 1
    assert counters(house) == (0, SIZE)


@pytest.mark.parametrize("statement", ["INSERT INTO storage_reservations", "UPDATE storage_quota_usage"])
def test_a_request_that_fails_on_its_way_reserves_nothing(house: House, tmp_path: Path, statement: str) -> None:
    """R71: reservation and batch are one transaction."""
    before = house.everything()
    with stopped_after(house.engine, statement):
        house.batch({"a.png": png()}, tmp_path)
    assert house.everything() == before and counters(house) == (0, 0)


def test_a_limit_may_be_lower_than_what_is_used(house: House, tmp_path: Path) -> None:
    """R78: what is stored stays; nothing more comes in. The change is in the audit."""
    image = house.image()
    limit(house, 1)
    (_, usage) = in_transaction(house.engine, read_usage)
    assert (usage.used_bytes, usage.free_bytes) == (image.storage_bytes, 1 - image.storage_bytes)
    with pytest.raises(ScribeError, match="there is no room"):
        house.batch({"a.png": png()}, tmp_path)
    assert house.rows("SELECT action, subject FROM operator_audit") == [("limit 1 bytes", "storage of workspace default")]
    with pytest.raises(ScribeError, match="no workspace 'nobody'; there are: default") as caught:
        limit(house, 1, "nobody")
    assert caught.value.category is Category.INVALID_ARGUMENT


def test_a_workspace_without_counters_stores_nothing(house: House, tmp_path: Path) -> None:
    """R78, R84: damage by hand is refused rather than counted past."""
    scope, owner = house.rows("SELECT scope, scope::uuid FROM storage_quota_usage WHERE scope <> 'global'")[0]
    house.execute("DELETE FROM storage_quota_usage WHERE scope = :scope", scope=scope)
    with pytest.raises(ScribeError, match="the workspace has no quota"):
        in_transaction(house.engine, lambda connection: reserve(connection, owner, owner, [1], 60))
    house.execute("INSERT INTO storage_quota_usage (scope, limit_bytes) VALUES (:scope, 1)", scope=scope)
