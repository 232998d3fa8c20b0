"""Sessions that get in one another's way, statement by statement, in thousands of random orders; and the order of locks."""

import multiprocessing
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pytest
from sqlalchemy import event, true

from scribe_pipeline.database import EmbeddedServer, connect, lock
from scribe_pipeline.database.tables import (
    annotation_pages,
    ingest_batch_files,
    ingest_batches,
    item_images,
    items,
    storage_quota_usage,
    transcription_jobs,
)
from scribe_pipeline.engines import Segmentation
from scribe_pipeline.errors import ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import SegmentationSource
from scribe_pipeline.ingest.claims import claim_file
from scribe_pipeline.ingest.work import SegmentationUnit
from scribe_pipeline.jobs import request_job
from tests.conftest import fresh_database, invariants
from tests.faults.answers import Judge, read_rows
from tests.faults.schedule import AtRandom, Sessions, lock_order, locked_table
from tests.faults.stage import Stages, scripts
from tests.houses import THREE_LINES, House
from tests.proofs import numbers_of, seed_of, seeded_item, tell

_PROCESSES = 2
_MOST_SESSIONS = 5
WAITS_FOR_A_LOCK = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


@dataclass
class Seen:
    """What a process saw of its interleavings: what it counted, the orders of locks by table, and the first failure."""

    counted: Counter[str] = field(default_factory=Counter)
    orders: dict[tuple[str, ...], str] = field(default_factory=dict)
    failure: str | None = None


class Theatre:
    """One database in which interleavings are played one after the other, and judged."""

    def __init__(self, url: str, seed: int) -> None:
        self.seen = Seen()
        self._seed = seed
        self._stages = Stages(url, seed)
        self._sessions = Sessions(url, _MOST_SESSIONS)
        self._watcher = psycopg.connect(url, autocommit=True)
        # one statement for all, as there are many and each is asked after each interleaving
        self._names = list(invariants())
        self._any_broken = " UNION ALL ".join(
            f"SELECT {number} WHERE EXISTS (\n{query})" for number, query in enumerate(invariants().values())
        )

    def play(self, number: int) -> None:
        """Play one interleaving on an empty stage."""
        chance = seeded_item(self._seed, number)
        stage = self._stages.next(chance)
        before = read_rows(self._watcher)
        played = self._sessions.play(scripts(stage, chance), AtRandom(chance))
        broken = [f"broken: {self._names[row[0]]}" for row in self._watcher.execute(self._any_broken, prepare=True)]
        complaints = [*played.errors, *Judge(before, read_rows(self._watcher)).judge(played.answers), *broken]
        self.seen.counted.update(statements=len(played.steps), waits=played.waits, operations=len(played.answers))
        self.seen.counted.update(answer.refusal or "done" for answer in played.answers)
        if complaints:
            replay = f"SCRIBE_PROOF_SEED={self._seed} SCRIBE_PROOF_ONLY={number}"
            parts = [complaints, played.steps, [str(answer) for answer in played.answers]]
            self.seen.failure = "\n\n".join(
                [f"interleaving {number}; {replay} plays it again", *("\n".join(part) for part in parts)]
            )

    def close(self) -> Seen:
        """Give up the connections and return what was seen, with the deadlocks that the server has counted."""
        self._sessions.close()
        self.seen.orders = self._sessions.orders
        self._stages.close()
        deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        self.seen.counted["deadlocks"] = self._watcher.execute(deadlocks).fetchall()[0][0]
        self._watcher.close()
        return self.seen


def play_all(url: str, seed: int, numbers: Sequence[int]) -> Seen:
    """Play the interleavings of these numbers to the first that fails."""
    theatre = Theatre(url, seed)
    for number in numbers:
        theatre.play(number)
        if theatre.seen.failure is not None:
            break
    return theatre.close()


@pytest.fixture(scope="module")
def seen(server: EmbeddedServer) -> list[Seen]:
    """What each of the processes saw; they share the interleavings."""
    seed, numbers = seed_of("interleavings"), numbers_of("interleavings")
    with ExitStack() as stack:
        urls = [stack.enter_context(fresh_database(server)) for _ in range(_PROCESSES)]
        pool = stack.enter_context(ProcessPoolExecutor(_PROCESSES, multiprocessing.get_context("spawn")))
        shares = [pool.submit(play_all, url, seed, numbers[first::_PROCESSES]) for first, url in enumerate(urls)]
        return [share.result() for share in shares]


@pytest.mark.proof
def test_answers_and_rows_agree_in_any_order(seen: list[Seen]) -> None:
    """R5-R10, R13, R22-R27, R91, R97, R98: no order of statements breaks an invariant or belies an answer."""
    failures = [one.failure for one in seen if one.failure is not None]
    assert not failures, failures[0]
    counted = sum((one.counted for one in seen), Counter())
    assert counted["waits"] > 0
    tell(f"interleavings: {len(numbers_of('interleavings'))}, {', '.join(f'{counted[name]} {name}' for name in sorted(counted))}")


@pytest.mark.proof
def test_locks_are_taken_in_one_order(seen: list[Seen]) -> None:
    """R144: over all transactions, the order in which tables are locked has no circle, and nobody was in a deadlock."""
    orders = {order: kind for one in seen for order, kind in one.orders.items()}
    tables = lock_order(orders)
    assert {"storage_quota_usage", "item_images", "transcription_jobs", "annotation_pages"} <= set(tables)
    assert sum(one.counted["deadlocks"] for one in seen) == 0
    tell(f"lock order: {' < '.join(tables)}; {len(orders)} orders seen, 0 deadlocks")


def test_lock_takes_tables_in_the_houses_order(house: House) -> None:
    """R144: whatever the mapping's order, and by the keys' order within a table."""
    batch_id, _ = house.ingested(2)
    wanted = {
        annotation_pages: annotation_pages.c.revision == 1,
        transcription_jobs: transcription_jobs.c.batch_id == batch_id,
        ingest_batch_files: ingest_batch_files.c.batch_id == batch_id,
        item_images: true(),
        ingest_batches: ingest_batches.c.id == batch_id,
        items: true(),
        storage_quota_usage: true(),
    }
    names = [
        "storage_quota_usage", "ingest_batches", "ingest_batch_files", "items", "item_images", "transcription_jobs",
        "annotation_pages",
    ]  # fmt: skip
    asked: list[str] = []
    event.listen(house.engine, "before_cursor_execute", lambda *all_of_it: asked.append(all_of_it[2]))
    for tables in (wanted, dict(reversed(wanted.items()))):
        asked.clear()
        with house.engine.begin() as connection:
            held = lock(connection, tables)
        assert [locked_table(statement)[1] for statement in asked] == names
        assert [row.id for row in held[transcription_jobs]] == sorted(row.id for row in held[transcription_jobs])
        assert all(len(held[table]) == count for table, count in zip(wanted, (2, 2, 2, 2, 1, 1, 2), strict=True))


def test_a_request_does_not_meet_half_of_a_page(house: House, database_url: str) -> None:
    """R3, R94: a request that comes while an image gets its page and job sees both or neither, whatever it has read so far."""
    batch_id, (image,) = house.ingested(0, incomplete=1)
    claim = claim_file(house.engine, batch_id, 60, stored=True)
    requester = connect(database_url)
    source = SegmentationSource(house.settings, batch_id, lambda _: None, lambda _: None)
    unit = SegmentationUnit(source, claim, image, with_preview=False)
    with ThreadPoolExecutor(1) as other:
        segmented: list[Future[None]] = []

        def segment_now(*hooked: Any) -> None:
            if locked_table(hooked[2])[1] == "annotation_pages" and not segmented:
                segmented.append(other.submit(unit.finish, Segmentation(THREE_LINES, "fake 1.0", 0.0)))
                while not segmented[0].done() and not house.value(WAITS_FOR_A_LOCK):
                    pass

        event.listen(requester, "before_cursor_execute", segment_now)
        with pytest.raises(ScribeError, match="has no canonical page to transcribe"):
            request_job(requester, image.id, "letter", 3, Operator("operator"))
        segmented[0].result()
    requester.dispose()
    assert request_job(house.engine, image.id, "letter", 3, Operator("operator")).created is False
