"""Strikes at every point of the queue's operations: all of an operation's effects or none, and the work is done once after all."""

import os
import random
import re
import signal
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pytest

from scribe_pipeline.database import DatabaseError, EmbeddedServer, connect, upgrade
from scribe_pipeline.database.tables import metadata
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.jobs import TranscriptionSource, drain
from tests.conftest import broken_invariants, started_server
from tests.faults.operations import OPERATIONS, Operation, story
from tests.faults.strikes import AFTER_COMMIT, BEFORE_COMMIT, Striker, Watch
from tests.houses import FakeEngines, House, InlinePool
from tests.proofs import named, seeded, size_of, tell, wait_until

_KEPT = ("workspaces", "contexts")
_TABLES = sorted(table.name for table in metadata.tables.values() if table.name not in _KEPT)
# What is another each time: ids, hashes, times, and who holds a lease by which token.
_CHANGING = re.compile(
    r"[0-9a-f]{64}|[0-9a-f]{32}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
    r'|\d{4}-\d\d-\d\dT[\d:.+]+|(?<="lease_(owner|token)": ")[^"]+'
)
_DIE, _RESTART, _LOST_ANSWER = "SIGKILL", "server restart", "lost answer"


@dataclass(frozen=True)
class Course:
    """An operation that nobody disturbs: the points it passes, and the rows before and after it."""

    points: list[str]
    before: Counter[str]
    after: Counter[str]

    @property
    def commit(self) -> int:
        """The point before the commit of what it writes: the last one, as what is committed before it has only been read."""
        return max(number for number, point in enumerate(self.points) if point == BEFORE_COMMIT)


class Field:
    """The database in which operations are struck, on a server that nobody else uses."""

    def __init__(self, server: EmbeddedServer, blobs: Path) -> None:
        server.ensure_database("struck")
        self.striker = Striker(server)
        self.url = server.url("struck")
        self.house = House(connect(self.url), blobs)
        self.tokens: set[str] = set()
        upgrade(self.house.engine)
        # The server forgets what it has not written when it is stopped at once; a commit that was answered must be there.
        self.house.execute("ALTER DATABASE struck SET synchronous_commit = on")
        self.house.engine.dispose()
        self.house.subscribe()

    def start(self, operation: Operation) -> Any:
        """Bring an empty database to where the operation starts."""
        self.house.empty()
        return operation.prepare(self.house)

    def rows(self) -> Counter[str]:
        """All rows, but for what is another each time."""
        every = " UNION ALL ".join(f"SELECT '{table} ' || to_jsonb(r)::text AS line FROM {table} AS r" for table in _TABLES)
        return Counter(_CHANGING.sub("#", row.line) for row in self.house.rows(every))

    def undisturbed(self, operation: Operation) -> Course:
        """Run the operation once for its points."""
        work = self.start(operation)
        before = self.rows()
        worker = connect(self.url)
        watch = Watch(worker)
        operation.act(worker, work)
        worker.dispose()
        after = self.rows()
        assert before != after
        return Course(watch.points, before, after)

    def kill_at(self, operation: Operation, work: Any, point: int) -> None:
        """Have a process of its own run the operation, and die at the point."""
        child = os.fork()
        if child == 0:
            try:
                worker = connect(f"{self.url}?application_name=worker")
                Watch(worker, self.striker.kill, point)
                operation.act(worker, work)
            finally:
                os._exit(1)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL

    def strike_at(self, kind: str, operation: Operation, work: Any, point: int) -> bool:
        """Run the operation here while the point is struck; return whether it ended well. Otherwise only in an error of ours."""
        worker = connect(f"{self.url}?application_name=worker")
        watch = Watch(worker, self.striker.kinds[kind], point)
        refused: list[DatabaseError] = []
        try:
            operation.act(worker, work)
        except DatabaseError as error:
            refused.append(error)
        worker.dispose()
        if kind == _RESTART:
            self.house.engine.dispose()
        self.tokens |= watch.tokens
        shown = "".join("".join(traceback.format_exception(error)) for error in refused)
        assert all(error.category is Category.UNAVAILABLE for error in refused)
        assert not [token for token in watch.tokens if token in shown]
        return not refused

    def settle(self) -> None:
        """Wait until the server has seen the end of the struck worker's session."""
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'worker'"
        wait_until(lambda: not self.house.value(sessions), "the end of the worker's session")

    def recover(self) -> None:
        """Let time pass, and the next worker do all that there is to do."""
        self.house.expire_lease()
        self.house.execute("UPDATE transcription_jobs SET retry_after = NULL WHERE retry_after IS NOT NULL")
        source = TranscriptionSource(self.house.engine, self.house.store_url, 60, lambda _: None)
        drain([source], InlinePool(), 60, 60)

    def repeat(self, operation: Operation, work: Any, committed: bool) -> None:
        """Do the operation again, as somebody does who has had no answer."""
        refused = None
        try:
            operation.act(self.house.engine, work)
        except ScribeError as error:
            refused = error.category
        assert refused == (operation.refused if committed else None)


@pytest.fixture
def field(tmp_path: Path, engines: FakeEngines) -> Iterator[Field]:
    with started_server() as server:
        made = Field(server, tmp_path / "blobs")
        yield made
        made.house.engine.dispose()


def plan(courses: dict[str, Course], kinds: list[str], count: int, random_numbers: random.Random) -> list[tuple[str, str, int]]:
    """Choose `count` of all strikes, each a kind, an operation and a point: evenly among kinds and operations, restarts fewer."""
    groups = []
    for kind in kinds:
        for name, course in courses.items():
            commit = course.commit
            # between two transactions no session is in use; whoever strikes one then disturbs nobody
            used = [number for number, point in enumerate(course.points) if number > commit or point != AFTER_COMMIT]
            shuffled = random_numbers.sample(used, len(used))
            # both sides of COMMIT come soon; what is struck there is what matters most
            points = [commit + 1] if kind == _LOST_ANSWER else dict.fromkeys([shuffled[0], commit, commit + 1, *shuffled])
            groups.append([(kind, name, point) for point in points])
    random_numbers.shuffle(groups)
    turns = [strike for turn in zip_longest(*groups) for strike in turn if strike is not None]
    restarts = [strike for strike in turns if strike[0] == _RESTART][: min(60, count // 10)]
    others = [strike for strike in turns if strike[0] != _RESTART][: count - len(restarts)]
    return random_numbers.sample(restarts + others, len(restarts) + len(others))


def strike(field: Field, course: Course, kind: str, name: str, point: int) -> bool:
    """Strike the operation once and see that all is well after it; return whether it was committed."""
    operation = OPERATIONS[name]
    committed = point > course.commit
    work = field.start(operation)
    if kind == _DIE:
        field.kill_at(operation, work, point)
    else:
        assert field.strike_at(kind, operation, work, point) == (committed and kind != _LOST_ANSWER)
    field.settle()
    assert field.rows() == (course.after if committed else course.before)
    assert broken_invariants(field.url) == {}
    asked_again = kind != _DIE or operation.by_person
    if asked_again:
        field.repeat(operation, work, committed)
        assert field.rows() == course.after
    field.recover()
    assert story(field.house) == (operation.end if committed or asked_again else operation.end_without)
    assert broken_invariants(field.url) == {}
    return committed


@pytest.mark.proof
def test_a_strike_at_any_point_leaves_all_or_nothing(field: Field, engines: FakeEngines, caplog: pytest.LogCaptureFixture) -> None:
    """R5, R6, R13, R25, R37, R41, R119, R121: each job ends once and as was asked, and no token is told."""
    courses = {name: field.undisturbed(operation) for name, operation in OPERATIONS.items()}
    strikes = plan(courses, list(field.striker.kinds), size_of("kill_points"), seeded("kill_points"))
    struck: Counter[str] = Counter()
    committed: Counter[str] = Counter()
    for number, (kind, name, point) in enumerate(strikes):
        with named(f"strike {number}: {kind}, {name}, {courses[name].points[point]} (point {point})"):
            struck[kind] += 1
            committed[kind] += strike(field, courses[name], kind, name, point)
        engines.crops.clear()
    assert field.tokens and not [token for token in field.tokens if token in caplog.text]
    for kind in field.striker.kinds:
        tell(f"kill_points: {kind}: {struck[kind]} strikes, {committed[kind]} of them after the commit")
