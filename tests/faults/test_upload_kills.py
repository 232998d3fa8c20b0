"""A worker is killed at each point of an upload: nothing is removed too soon, nothing stays for ever, and the file is a draft."""

import os
import random
import signal
import stat
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from scribe_pipeline.database import connect
from scribe_pipeline.engines import Ticket
from scribe_pipeline.ingest import Batch, ValidationSource
from scribe_pipeline.jobs import drain
from scribe_pipeline.storage import UPLOAD, LocalBlobStore
from scribe_pipeline.storage.removal import claim_removal
from tests.fake_gcs import FakeGcs
from tests.faults.depot import Depot
from tests.houses import FakeEngines, House, InlinePool, png
from tests.proofs import named, seed_of, seeded_item, size_of, tell, wait_until

_LOCAL = ("staged", "half written", "written to the folder", "stored", "before the image", "after COMMIT")
_POINTS = [("folder", point) for point in _LOCAL] + [("both", point) for point in (*_LOCAL, "sent to the bucket")]


class _Pool(InlinePool):
    """Says so when a task is done."""

    def __init__(self, workers: int, done: Callable[[], None]) -> None:
        super().__init__(workers)
        self._done = done

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Ticket:
        ticket = super().submit(task, *arguments)
        self._done()
        return ticket


class Killer:
    """Ends this process when the point is passed for the so-manieth time."""

    def __init__(self, point: str, turn: int) -> None:
        self._point = point
        self._left = turn

    def passed(self, point: str, before: Callable[[], None] = lambda: None) -> None:
        """Note that a point is passed."""
        self._left -= point == self._point
        if point == self._point and self._left == 0:
            before()
            os.kill(os.getpid(), signal.SIGKILL)

    def follow(self, engine: Engine) -> None:
        """Have the points of the store and of the database noted. The process is one that is to die, so nothing is put back."""
        write, fsync, link, commit = LocalBlobStore.write, os.fsync, os.link, engine.dialect.do_commit
        inserted: list[bool] = []

        def staged(store: LocalBlobStore, *arguments: Any) -> None:
            self.passed("staged")
            write(store, *arguments)

        def half_written(descriptor: int) -> None:
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                half = os.fstat(descriptor).st_size // 2
                self.passed("half written", partial(os.ftruncate, descriptor, half))
            fsync(descriptor)

        def written(*arguments: Any) -> None:
            link(*arguments)
            self.passed("written to the folder")

        def before_statement(_connection: object, _cursor: object, statement: str, *_rest: object) -> None:
            if statement.startswith("INSERT INTO item_images"):
                self.passed("before the image")
                inserted.append(True)

        def committed(connection: Any) -> None:
            commit(connection)
            if inserted:
                inserted.clear()
                self.passed("after COMMIT")

        LocalBlobStore.write = staged  # type: ignore[method-assign,assignment]
        os.fsync, os.link = half_written, written  # type: ignore[assignment]
        event.listen(engine, "before_cursor_execute", before_statement)
        engine.dialect.do_commit = committed  # type: ignore[method-assign]


def kill_at(depot: Depot, batch: Batch, point: str, turn: int, workers: int, gcs: FakeGcs) -> None:
    """Have a process of its own upload the batch's files, and die at the point."""
    child = os.fork()
    if child == 0:
        try:
            engine, killer = connect(f"{depot.url}?application_name=worker"), Killer(point, turn)
            killer.follow(engine)
            settings = replace(depot.house.settings, engine=engine)
            source = ValidationSource(settings, batch.id, lambda _: None, lambda _: None)
            drain([source], _Pool(workers, partial(killer.passed, "stored")), 60, 60)
        finally:
            os._exit(1)
    sent: list[str] = []

    def strike_sender(method: str, name: str) -> None:
        """The bucket has the whole request, and stores the object whatever becomes of the writer."""
        sent.extend([name] * (method == "POST" and name.endswith(".png")))
        if point == "sent to the bucket" and len(sent) == turn:
            os.kill(child, signal.SIGKILL)

    gcs.before = strike_sender
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    wait_until(lambda: set(sent) <= gcs.objects.keys(), "what was sent to the bucket")
    gcs.before = lambda method, name: None
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'worker'"
    wait_until(lambda: not depot.house.value(sessions), "the end of the worker's session")


def strike(depot: Depot, folder: Path, point: str, chance: random.Random, gcs: FakeGcs) -> int:
    """Kill one upload at the point and see that all is well after it; return how many objects had to be removed before that."""
    house, count = depot.house, chance.randint(1, 2)
    depot.empty()
    files = {f"{number}.png": png(colour=f"#0000{chance.randrange(256):02x}") for number in range(count)}
    batch = house.batch(files, folder, again=True)
    kill_at(depot, batch, point, chance.randint(1, count), chance.randint(1, 2), gcs)
    depot.check()
    assert claim_removal(house.engine, {UPLOAD}, 60) is None, "a deadline was not waited for"
    removed = 0
    if chance.random() < 0.5:
        depot.pass_time()
        removed = depot.clean().removed
        depot.check()
        assert depot.temporaries == []
    assert depot.finish(batch).status == "completed"
    depot.pass_time()
    depot.clean()
    depot.check_at_rest()
    assert house.value("SELECT count(*) FROM item_images") == count
    used = house.rows("SELECT used_bytes, reserved_bytes FROM storage_quota_usage")
    assert used == [(sum(map(len, files.values())), 0)] * 2
    return removed


@pytest.mark.proof
@pytest.mark.parametrize("kept", ["folder", "both"])
def test_a_killed_upload_leaks_nothing(
    kept: str, database_url: str, tmp_path: Path, engines: FakeEngines, fake_gcs: FakeGcs
) -> None:
    """R71-R75: what was stored belongs to a row, waits for its deadline, goes then, and the file becomes a draft all the same."""
    engines.lines = engines.lines[:1]
    both = f"gs://{fake_gcs.bucket}/letters?folder={tmp_path / 'blobs'}"
    house = House(connect(database_url), tmp_path / "blobs", both if kept == "both" else None)
    depot, seed, counted = Depot(house, database_url), seed_of("upload_kills"), Counter[str]()
    for where, point in _POINTS:
        for number in range(size_of("upload_kills") * (where == kept)):
            with named(f"{kept}, {point}, kill {number}"):
                chance = seeded_item(seed, f"{kept} {point} {number}")
                counted["objects removed"] += strike(depot, tmp_path / "files", point, chance, fake_gcs)
                counted[point] += 1
    depot.close()
    tell(f"upload_kills: {kept}: " + ", ".join(f"{count} {point}" for point, count in counted.items()))
