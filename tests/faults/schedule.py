"""Several sessions whose statements are let through one by one, in an order that somebody chooses step by step.

Each session is a thread with connections of its own. It stops before every statement, commit and rollback, and before each
`step` of its own, until the schedule lets it through. One that then waits for a lock is left to wait while others go on; when a
transaction has ended, those that waited are looked at again before the next step. So the same choices give the same schedule as
a rule, though not always: which of several sessions gets a row that one commit frees, say, is the server's choice. What was
really played is told.
"""

import re
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache, partial
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from queue import Empty, SimpleQueue
from random import Random
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, create_engine, event

from scribe_pipeline.database import DatabaseError, sqlalchemy_url
from scribe_pipeline.errors import Category, ScribeError

# How long a step is waited for before the server is asked whether it waits for a lock; most take less.
_LOOK_SECONDS, _LONGEST_LOOK_SECONDS = 0.001, 0.02
# Nothing takes that long: whoever has not come back by then hangs.
_STUCK_SECONDS = 30.0
_COMMIT, _ROLLBACK = "COMMIT", "ROLLBACK"
_DEADLOCK = "40P01"

_WRITE = re.compile(r"\s*(UPDATE|DELETE FROM|INSERT INTO) (\w+)")
_READ = re.compile(r"\s*(\w+).*?\bFROM (\w+)(?:.*(\bFOR (?:NO KEY )?(?:UPDATE|SHARE|KEY SHARE))(?: OF (\w+))?)?", re.DOTALL)

# Which of the sessions that may go on does so, by their numbers.
Chooser = Callable[[list[int]], int]
_own = threading.local()


@dataclass(frozen=True)
class Operation:
    """What a session does to one `subject`, and all that is needed to judge what it answers."""

    kind: str
    subject: str
    run: Callable[[Engine], Any]
    facts: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.kind} {self.subject}"


@dataclass(frozen=True)
class Answer:
    """What an operation returned, or why it refused, and at which step its last transaction ended."""

    operation: Operation
    value: Any
    refusal: Category | None
    step: int

    def __str__(self) -> str:
        return f"{self.operation} -> {self.refusal or str(self.value)[:200]} at {self.step}"


@dataclass(frozen=True)
class Played:
    """What came of one schedule: its steps in words, the answers in the order of their commits, the waits for locks, and what
    must not be: deadlocks, and errors that no operation may end with."""

    steps: list[str]
    answers: list[Answer]
    waits: int
    errors: list[str]


@cache
def locked_table(statement: str) -> tuple[str, str | None]:
    """Return a statement in a few words, and the table that it locks existing rows of, if it does."""
    if write := _WRITE.match(statement):
        verb, table = write.groups()
        return f"{verb} {table}", None if verb == "INSERT INTO" else table
    if (read := _READ.match(statement)) is None:
        return " ".join(statement.split()[:4]), None
    verb, table, clause, of = read.groups()
    return f"{verb} {of or table} {clause or ''}".rstrip(), (of or table) if clause else None


def step(words: str) -> None:
    """Make what the session does next, which is no statement, a step of the schedule; without a schedule do nothing."""
    if (session := getattr(_own, "session", None)) is not None:
        session.wait(words)


class AtRandom:
    """Chooses any session, but in some schedules rather the one that went on last."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._keep_on = chance.choice((0, 0.5, 0.9, 0.97))
        self._last: int | None = None

    def __call__(self, able: list[int]) -> int:
        if self._last not in able or self._chance.random() >= self._keep_on:
            self._last = self._chance.choice(able)
        return self._last


@dataclass
class _Fork:
    """A point in schedules that begin alike: what has been chosen there, and whether all that can follow has been played."""

    chosen: "dict[int, _Fork]" = field(default_factory=dict)
    played: bool = False


class Unplayed:
    """Chooses schedules that have not been played yet, in a random order, until there are no others."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._root = _Fork()
        self._path: list[_Fork] = []
        self.end()

    @property
    def done(self) -> bool:
        """Whether every schedule there is has been played."""
        return self._root.played

    def __call__(self, able: list[int]) -> int:
        here = self._path[-1]
        ways = {number: here.chosen.setdefault(number, _Fork()) for number in able}
        number = self._any([number for number, way in ways.items() if not way.played] or able)
        self._path.append(ways[number])
        return number

    def end(self) -> None:
        """Take note that the schedule is over, and begin another."""
        for point in reversed(self._path):
            point.played = all(way.played for way in point.chosen.values())
        self._path, self._any = [self._root], AtRandom(self._chance)


def lock_order(orders: dict[tuple[str, ...], str]) -> list[str]:
    """Return the tables so that no transaction locks one before another that precedes it; fail if there is no such order."""
    before: dict[str, set[str]] = {}
    for order in orders:
        for earlier, later in pairwise(order):
            before.setdefault(later, set()).add(earlier)
    try:
        tables = list(TopologicalSorter(before).static_order())
    except CycleError as error:
        raise AssertionError(f"{error.args[1]} is a circle; locks are taken so: {orders}") from None
    assert "storage_quota_usage" not in before, "the counters come before all else"
    return tables


class _Session:
    """A thread, its connection, and the gate between them."""

    def __init__(self, url: str, number: int, arrivals: "SimpleQueue[_Session]", connections: int) -> None:
        self.number = number
        self.at: str | None = None
        self.operation: Operation | None = None
        self.answers: list[Answer] = []
        self.deadlocks = 0
        self.locked: dict[str, None] = {}
        self.orders: dict[tuple[str, ...], str] = {}
        self.done: Future[None] | None = None
        self._arrivals = arrivals
        self._step = 0
        self._gate = threading.Lock()
        self._gate.acquire()
        self._thread = ThreadPoolExecutor(1)
        # A deadlock is a failure of the proof; it is to be found at once.
        options = {"options": "-c deadlock_timeout=50ms"}
        self._engine = create_engine(
            sqlalchemy_url(url), pool_size=connections, max_overflow=0, hide_parameters=True, connect_args=options
        )
        self.pids: set[int] = set()
        event.listen(self._engine, "connect", lambda driver, _: self.pids.add(driver.info.backend_pid))
        event.listen(self._engine, "before_cursor_execute", self._before_statement)
        event.listen(self._engine, "handle_error", self._on_error)
        dialect = self._engine.dialect
        dialect.do_commit = partial(self._before_end, _COMMIT, dialect.do_commit)  # type: ignore[method-assign]
        dialect.do_rollback = partial(self._before_end, _ROLLBACK, dialect.do_rollback)  # type: ignore[method-assign]

    def begin(self, script: Sequence[Operation]) -> None:
        self.answers, self.deadlocks, self._ended = [], 0, 0
        self.done = self._thread.submit(self._work, script)
        self.done.add_done_callback(self._arrive_at_end)

    def go(self, step: int) -> None:
        self._step = step
        self._gate.release()

    def close(self) -> None:
        self._thread.shutdown()
        self._engine.dispose()

    def _work(self, script: Sequence[Operation]) -> None:
        _own.session = self
        for operation in script:
            self.operation = operation
            value, refusal = None, None
            try:
                value = operation.run(self._engine)
            except DatabaseError:
                raise
            except ScribeError as error:
                refusal = error.category
            self.answers.append(Answer(operation, value, refusal, self._ended))

    def _before_statement(self, connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        words, table = locked_table(statement)
        self.wait(words)
        if table is not None:
            self.locked.setdefault(table)

    def _before_end(self, how: str, end: Callable[[Any], None], connection: Any) -> None:
        if connection.driver_connection.info.transaction_status != TransactionStatus.IDLE:
            self.wait(how)
            self._ended = self._step
            self.orders.setdefault(tuple(self.locked), str(self.operation and self.operation.kind))
            self.locked.clear()
        end(connection)

    def _on_error(self, context: Any) -> None:
        self.deadlocks += getattr(context.original_exception, "sqlstate", None) == _DEADLOCK

    def wait(self, words: str) -> None:
        self.at = words
        self._arrivals.put(self)
        self._gate.acquire()

    def _arrive_at_end(self, _: Future[None]) -> None:
        self.at = None
        self._arrivals.put(self)


class Sessions:
    """Sessions of one database that play one schedule after the other.

    Each has one connection, or more for an operation that holds one while it works over another.
    """

    def __init__(self, url: str, count: int, connections: int = 1) -> None:
        self._arrivals: SimpleQueue[_Session] = SimpleQueue()
        self._all = [_Session(url, number, self._arrivals, connections) for number in range(count)]
        self._observer = psycopg.connect(sqlalchemy_url(url).set(drivername="postgresql").render_as_string(False), autocommit=True)
        self._waiting: set[_Session] = set()
        self._running: set[_Session] = set()
        self._blocked: set[_Session] = set()

    @property
    def orders(self) -> dict[tuple[str, ...], str]:
        """In which order transactions have locked rows of tables for the first time, and one kind of operation that did so."""
        return {order: kind for session in self._all for order, kind in session.orders.items()}

    def play(self, scripts: Sequence[Sequence[Operation]], choose: Chooser) -> Played:
        """Let each script run in a session, one chosen to go on after the other, until all are done."""
        sessions, steps, waits = self._all[: len(scripts)], [], 0
        for session, script in zip(sessions, scripts, strict=True):
            session.begin(script)
            self._running.add(session)
            self._settle()
        while self._waiting or self._blocked:
            if not self._waiting:  # a circle: the server will break it
                self._running, self._blocked = self._blocked, set()
                self._hear(_STUCK_SECONDS)
                self._settle()
                continue
            chosen = sessions[choose(sorted(session.number for session in self._waiting))]
            ends = chosen.at in (_COMMIT, _ROLLBACK)
            steps.append(f"{chosen.number} {chosen.operation}: {chosen.at}")
            self._waiting.remove(chosen)
            self._running.add(chosen)
            chosen.go(len(steps))
            self._settle()
            if chosen in self._blocked:
                waits += 1
                steps[-1] += " (waits)"
            # a statement that fails frees its locks, too
            if self._blocked and (ends or chosen.at == _ROLLBACK):
                self._running, self._blocked = self._blocked, set()
                self._settle()
        return Played(
            steps,
            sorted((answer for session in sessions for answer in session.answers), key=lambda answer: answer.step),
            waits,
            [
                *(f"{session.operation}: {error!r}" for session in sessions if (error := session.done.exception())),
                *(f"{session.number} was the victim of a deadlock" for session in sessions if session.deadlocks),
            ],
        )

    def close(self) -> None:
        """Give up the connections."""
        for session in self._all:
            session.close()
        self._observer.close()

    def _settle(self) -> None:
        """Wait until each session that runs has come back to its gate, has ended, or waits for a lock."""
        deadline, patience = time.monotonic() + _STUCK_SECONDS, _LOOK_SECONDS
        while self._running:
            if self._hear(patience):
                continue
            # whoever does not wait for a lock now is at something that takes long
            patience = min(2 * patience, _LONGEST_LOOK_SECONDS)
            if self._for_a_lock(self._running) == self._running:
                self._blocked |= self._running
                self._running = set()
            assert time.monotonic() < deadline, f"{[str(session.operation) for session in self._running]} do not come back"

    def _hear(self, seconds: float) -> bool:
        """Take note of the next session that comes back; False if none does in time."""
        try:
            session = self._arrivals.get(timeout=seconds)
        except Empty:
            return False
        self._running.discard(session)
        self._blocked.discard(session)
        if session.at is not None:
            self._waiting.add(session)
        return True

    def _for_a_lock(self, sessions: set[_Session]) -> set[_Session]:
        pids = {pid: session for session in sessions for pid in session.pids}
        found = self._observer.execute(
            "SELECT pid FROM unnest(%s::integer[]) AS pid WHERE cardinality(pg_blocking_pids(pid)) > 0", [list(pids)]
        )
        return {pids[pid] for (pid,) in found}
