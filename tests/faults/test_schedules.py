"""Each two of the operations on objects, statement by statement in all the orders there are, or in as many as there is time for."""

import hashlib
import multiprocessing
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import combinations_with_replacement
from pathlib import Path

import psycopg
import pytest

from scribe_pipeline.database import EmbeddedServer
from tests.conftest import fresh_database, invariants
from tests.faults.depot import REFERRED, WAITING
from tests.faults.rivals import KINDS, REFUSALS, Rivals
from tests.faults.schedule import Answer, Sessions, Unplayed, lock_order
from tests.proofs import chosen_of, seed_of, seeded_item, size_of, tell

_PROCESSES = 2
# What was asked for in error of an object that is in use has no bytes; a deletion would not give it those of its image.
_PAIRS = [pair for pair in combinations_with_replacement(KINDS, 2) if pair != ("delete", "err")]
_CLEANED_EVERY = 4


@dataclass
class Seen:
    """What a process saw: what it counted, the orders of locks by table, and the first failure."""

    counted: Counter[str] = field(default_factory=Counter)
    orders: dict[tuple[str, ...], str] = field(default_factory=dict)
    failure: str | None = None


class Arena:
    """One database and one folder in which schedules are played, and judged."""

    def __init__(self, url: str, folder: Path) -> None:
        self.seen = Seen()
        self._rivals = Rivals(url, folder)
        self._sessions = Sessions(url, 2)
        self._watcher = psycopg.connect(url, autocommit=True)
        self._any_broken = {
            name: f"SELECT {number} WHERE EXISTS (\n{query})" for number, (name, query) in enumerate(invariants().items())
        }

    def play_pair(self, pair: tuple[str, str], chooser: Unplayed, most: int) -> None:
        """Play schedules of the two until there are no others, or so many have been played, or one fails."""
        for number in range(most):
            self._rivals.start()
            played = self._sessions.play([[self._rivals.operation(name)] for name in pair], chooser)
            chooser.end()
            complaints = [*played.errors, *(f"{answer}: is refused" for answer in played.answers if _unforeseen(answer))]
            complaints += self._complaints(played.answers, pair)
            if number % _CLEANED_EVERY == 0 or "err" in pair:
                self._rivals.clean()
                complaints += [f"{said}, after all is removed" for said in self._complaints(played.answers, pair, at_rest=True)]
            self.seen.counted.update(schedules=1, statements=len(played.steps), waits=played.waits)
            if complaints:
                parts = [complaints, played.steps, [str(answer) for answer in played.answers]]
                self.seen.failure = "\n\n".join([f"schedule {number} of {pair}", *("\n".join(part) for part in parts)])
                return
            if chooser.done:
                self.seen.counted["pairs of which all were played"] += 1
                return

    def _complaints(self, answers: Sequence[Answer], pair: tuple[str, str], *, at_rest: bool = False) -> list[str]:
        """What is wrong with rows and objects; `at_rest`, when nothing is to be removed any more."""
        # an error of that kind is there until it is found
        asked = [query for name, query in self._any_broken.items() if at_rest or "err" not in pair or not name.startswith("I10")]
        names = list(self._any_broken)
        faults = [f"broken: {names[row[0]]}" for row in self._watcher.execute(" UNION ALL ".join(asked), prepare=True)]
        referred = dict(self._watcher.execute(REFERRED).fetchall())
        waiting = {key for (key,) in self._watcher.execute(WAITING)}
        there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in self._rivals.store.folder.iterdir()}
        faults += [f"{key} is referred to, and is not there as it was" for key in referred if there.get(key) != referred[key]]
        faults += [f"{key} is nobody's" for key in there.keys() - referred.keys() - waiting]
        if at_rest:
            faults += [f"{key} still waits to be removed" for key in waiting]
        if not {"cancel", "delete"} & {*pair}:
            stored = [key for answer in answers if answer.operation.kind in ("commit", "upload") for key in answer.value]
            faults += [f"{key} was stored, and no image has it" for key in stored if key not in referred]
        return faults

    def close(self) -> Seen:
        """Give up the connections and return what was seen, with the deadlocks that the server has counted."""
        self._sessions.close()
        self.seen.orders = self._sessions.orders
        self._rivals.close()
        deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
        self.seen.counted["deadlocks"] = self._watcher.execute(deadlocks).fetchall()[0][0]
        self._watcher.close()
        return self.seen


def _unforeseen(answer: Answer) -> bool:
    return answer.refusal is not None and answer.refusal not in REFUSALS.get(answer.operation.kind, set())


def play_pairs(url: str, folder: Path, seed: int, numbers: Sequence[int], most: int) -> Seen:
    """Play the pairs of these numbers, to the first schedule that fails."""
    arena = Arena(url, folder)
    for number in numbers:
        arena.play_pair(_PAIRS[number], Unplayed(seeded_item(seed, _PAIRS[number])), most)
        if arena.seen.failure is not None:
            arena.seen.failure = f"SCRIBE_PROOF_SEED={seed} SCRIBE_PROOF_ONLY={number} plays this again\n\n{arena.seen.failure}"
            break
    return arena.close()


@pytest.fixture(scope="module")
def seen(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """What each of the processes saw; they share the pairs."""
    seed, numbers, most = seed_of("schedules"), chosen_of(len(_PAIRS)), size_of("schedules")
    with ExitStack() as stack:
        urls = [stack.enter_context(fresh_database(server)) for _ in range(_PROCESSES)]
        pool = stack.enter_context(ProcessPoolExecutor(_PROCESSES, multiprocessing.get_context("spawn")))
        shares = [
            pool.submit(play_pairs, url, tmp_path_factory.mktemp("arena"), seed, numbers[first::_PROCESSES], most)
            for first, url in enumerate(urls)
        ]
        return [share.result() for share in shares]


@pytest.mark.proof
def test_no_schedule_of_two_leaks_or_loses_an_object(seen: list[Seen]) -> None:
    """R5, R64-R69, R72-R74, R77, R78: each object is owned at any time, no reference leads nowhere, counters are right."""
    failures = [one.failure for one in seen if one.failure is not None]
    assert not failures, failures[0]
    counted = sum((one.counted for one in seen), Counter())
    assert counted["waits"] > 0
    tell(f"schedules: {len(_PAIRS)} pairs, {', '.join(f'{counted[name]} {name}' for name in sorted(counted))}")


@pytest.mark.proof
def test_locks_of_uploads_are_taken_in_one_order(seen: list[Seen]) -> None:
    """R63, R144: over all transactions on objects the order of locks has no circle, and nobody was in a deadlock."""
    tables = lock_order({order: kind for one in seen for order, kind in one.orders.items()})
    assert {"storage_quota_usage", "item_images", "storage_reservations", "resource_cleanup_outbox"} <= set(tables)
    assert sum(one.counted["deadlocks"] for one in seen) == 0
    tell(f"lock order of uploads: {' < '.join(tables)}")
