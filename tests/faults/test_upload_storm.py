"""Uploads by workers that are killed, with bad files and batches that nobody wants among them: no object is lost or left over."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from uuid import UUID

import pytest

from scribe_pipeline.database import connect
from scribe_pipeline.engines import Ticket, tasks
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import SegmentationSource, ValidationSource, cancel_batch, delete_item
from scribe_pipeline.jobs import drain
from scribe_pipeline.storage import UPLOAD, LocalBlobStore, remove_due, upload_remover
from scribe_pipeline.workspaces import sweep_reservations
from tests.faults.crew import Duty, Turn, Worker, Workplace, crew, named_engine
from tests.faults.depot import Depot
from tests.houses import FakeEngines, House, InlinePool, line_shape, png
from tests.proofs import seeded, size_of, tell, wait_until

_WORKERS, _DISPATCHERS, _OPEN_FILES = 4, 2, 40
# Much longer than a write takes, and short enough for what the dead have left to be removed while others work.
_DEADLINE_SECONDS = 5
_LEASE_SECONDS = 1
_WHO = Operator("operator", "in the middle of it")
_OPEN = "SELECT batch_id FROM ingest_batch_files WHERE status IN ('pending', 'processing') ORDER BY created_at, batch_id"
# Notes what dispatchers remove.
_WATCHMAN = """
    CREATE TABLE removals (attempts integer);
    CREATE FUNCTION note_removal() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO removals VALUES (OLD.attempt_count);
        RETURN NULL;
    END $$;
    CREATE TRIGGER watchman AFTER DELETE ON resource_cleanup_outbox FOR EACH ROW
    WHEN (OLD.delete_fenced_at IS NOT NULL) EXECUTE FUNCTION note_removal()
"""


class _SlowPool(InlinePool):
    """Lets time pass between a scan's storing and its commit, now and then more than the lease lasts."""

    def __init__(self, moods: random.Random) -> None:
        super().__init__()
        self._moods = moods

    def progress(self, ticket: Ticket) -> tuple[int, int]:
        """Take some time."""
        time.sleep(self._moods.uniform(0, 2 * _LEASE_SECONDS if self._moods.random() < 0.03 else 0.05))
        return 0, 0


def upload(place: Workplace, moods: random.Random) -> Turn:
    """Store and segment files of any batch."""
    engines = FakeEngines(lines=(line_shape(10, 5, 75),))
    tasks.segmentor = engines.segmentor  # type: ignore[assignment]
    house = House(named_engine(place), Path(place.store_url))
    settings = replace(house.settings, lease_seconds=_LEASE_SECONDS, reservation_seconds=_DEADLINE_SECONDS)
    pool = _SlowPool(moods)

    def turn() -> None:
        batches = list(dict.fromkeys(row.batch_id for row in house.rows(_OPEN)))
        for batch_id in moods.sample(batches, min(3, len(batches))):
            stages = (ValidationSource, SegmentationSource)
            sources = [stage(settings, batch_id, lambda _: None, lambda _: None) for stage in stages]
            drain(sources, pool, _LEASE_SECONDS, 1)

    return turn


def dispatch(place: Workplace, moods: random.Random) -> Turn:
    """Remove what is due."""
    engine, store = named_engine(place), LocalBlobStore(Path(place.store_url))
    remove_at_once = upload_remover(engine, store)

    def remove(key: str) -> None:
        time.sleep(moods.uniform(0, 0.02))
        remove_at_once(key)

    def turn() -> None:
        store.sweep_temporaries(_DEADLINE_SECONDS)
        sweep_reservations(engine)
        remove_due(engine, {UPLOAD: remove})

    return turn


@dataclass
class Storm:
    """What has been asked for so far."""

    house: House
    folder: Path
    chance: random.Random
    good: set[tuple[UUID, int]] = field(default_factory=set)
    unwanted: set[UUID] = field(default_factory=set)
    counted: Counter[str] = field(default_factory=Counter)

    def open_batches(self) -> list[UUID]:
        """The batch of each file that has not ended."""
        return [row.batch_id for row in self.house.rows(_OPEN)]

    def ask(self, most: int) -> None:
        """Make a batch of some files. Some files are bad; some batches have few attempts, some are not wanted for long."""
        files: dict[str, bytes] = {}
        good = []
        for number in range(1, min(most, self.chance.randint(1, 6)) + 1):
            data = png(80, 60, colour=f"#{self.chance.randrange(1 << 24):06x}")
            kind = self.chance.choice(("good",) * 27 + ("cut", "empty", "no image"))
            files[f"{number:02}.png"] = {"good": data, "cut": data[: len(data) // 2], "empty": b"", "no image": b"words"}[kind]
            if kind == "good":
                good.append(number)
            self.counted["files"] += 1
        attempts = 10_000 if self.chance.random() < 0.9 else 3
        batch = self.house.batch(files, self.folder / str(self.counted["files"]), again=True, max_attempts=attempts)
        if self.chance.random() < 0.1:
            self.unwanted.add(batch.id)
        elif attempts > 3:
            self.good |= {(batch.id, number) for number in good}
        self.counted["batches"] += 1

    def act(self, open_batches: list[UUID]) -> None:
        """Cancel a batch now and then, or delete its item, and let those who may try again do so at once."""
        for batch_id in sorted(self.unwanted.intersection(open_batches)):
            if (what := self.chance.choice(("canceled", "deleted", "left", "left"))) == "canceled":
                cancel_batch(self.house.engine, batch_id, _WHO)
            elif what == "deleted":
                item_id = self.house.value("SELECT item_id FROM ingest_batches WHERE id = :id", id=batch_id)
                delete_item(self.house.engine, item_id, _WHO)
            self.counted[f"batches {what}"] += what != "left"
        self.house.execute("UPDATE ingest_batch_files SET retry_after = NULL WHERE retry_after IS NOT NULL")

    def strike(self, workers: list[Worker], place: Workplace, duty: Duty, what: str) -> None:
        """Kill one of these, and have another in its place; what it was busy with, others see to."""
        worker = workers.pop(self.chance.randrange(len(workers)))
        assert worker.kill(), place.log.read_text()
        workers.append(Worker(place, self.chance.randrange(10**9), duty))
        for table in ("resource_cleanup_outbox", "ingest_batch_files"):
            self.house.execute(
                f"""UPDATE {table} SET lease_until = clock_timestamp() - interval '1 second'
                    WHERE status = 'processing' AND lease_owner = :owner""",
                owner=worker.owner,
            )
        self.counted[f"{what} killed"] += 1


@pytest.mark.proof
def test_a_storm_of_uploads_leaves_nothing_behind(database_url: str, tmp_path: Path) -> None:
    """R52-R57, R64-R74, R77: after the storm each good file's object is there, no other is, and the counters say so."""
    chance, size = seeded("upload_storm"), size_of("upload_storm")
    blobs = tmp_path / "blobs"
    place = Workplace(database_url, str(blobs), tmp_path / "warnings")
    house = House(connect(database_url), blobs)
    house.execute(_WATCHMAN)
    storm, depot = Storm(house, tmp_path / "files", chance), Depot(house, database_url)
    with crew(place, chance, _WORKERS, upload) as workers, crew(place, chance, _DISPATCHERS, dispatch) as dispatchers:
        started = time.monotonic()
        while (batches := storm.open_batches()) or storm.counted["files"] < size:
            assert time.monotonic() - started < 600, place.log.read_text()[-3000:]
            while len(batches) < _OPEN_FILES and storm.counted["files"] < size:
                storm.ask(size - storm.counted["files"])
                batches = storm.open_batches()
            storm.act(batches)
            time.sleep(chance.uniform(0, 0.15))
            if chance.random() < 0.8:
                storm.strike(workers, place, upload, "workers")
            else:
                storm.strike(dispatchers, place, dispatch, "dispatchers")
    # a worker that was killed may have sent a COMMIT that the server is still busy with
    sessions = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE '%:%'"
    wait_until(lambda: not house.value(sessions.replace(":", r"\:")), "the end of the workers' sessions")
    depot.check()
    storm.counted["objects removed"] = house.value("SELECT count(*) FROM removals")
    storm.counted["of them by a second dispatcher"] = house.value("SELECT count(*) FROM removals WHERE attempts > 1")
    depot.pass_time()
    storm.counted["objects removed afterwards"] = depot.clean().removed
    depot.check_at_rest()
    files = house.rows("SELECT batch_id, sequence, status, error_category FROM ingest_batch_files")
    ended = {(row.batch_id, row.sequence) for row in files if row.status == "completed"}
    assert storm.good <= ended, place.log.read_text()[-3000:]
    storm.counted |= Counter(row.status for row in files)
    tell(f"upload_storm: {', '.join(f'{count} {what}' for what, count in storm.counted.items() if count)}")
    depot.close()
