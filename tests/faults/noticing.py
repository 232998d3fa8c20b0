"""A database whose clock a test moves, a mail server in a bad mood, and all that happens at once where failures are told of."""

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import psycopg
from psycopg.pq import TransactionStatus
from sqlalchemy import Engine, create_engine, event, text

from scribe_pipeline.database import DatabaseError, in_transaction, sqlalchemy_url
from scribe_pipeline.errors import Category
from scribe_pipeline.events import Operator
from scribe_pipeline.jobs import cancel_job, end_attempt
from scribe_pipeline.outcomes import FAMILIES, Mailer, Policy, scan_outcomes, send_digests
from scribe_pipeline.outcomes.mail import Delivery, Mail, Sent
from tests.endings import FLYERS, RECIPIENT, SHAPES, Endings
from tests.faults.kept import EMPTY, KeptRows
from tests.faults.ledger import Ledger, key_of
from tests.faults.schedule import Operation, locked_table, step
from tests.houses import House
from tests.mail_sink import CONNECT, CUT, DATA, END, HANGING, LOST, MAIL, QUIT, RCPT, MailSink

_START = 0
_JOBS = 5
_NEVER = 10**9
# The steps before or after which somebody is struck, by how often: at one of the first few of that kind.
_STEPS = {
    "COMMIT": 6, "the mail": 4, "UPDATE flyer": 4, "UPDATE transcription": 2, "SELECT flyer": 2, "SELECT transcription": 2,
    "INSERT INTO": 1, "SELECT outcome": 1, "SELECT files": 1, "SELECT item_images": 1, "SELECT pg_advisory_xact": 1,
    "SELECT pg_try": 1, "SELECT pg_advisory_unlock": 1, "SELECT clock": 2, "SAVEPOINT": 1, "RELEASE SAVEPOINT": 1, "ROLLBACK TO": 1,
}  # fmt: skip
_FIRST_FEW = 8
_LEASE_SECONDS = 7 * 86400
_POINTS = (CONNECT, MAIL, RCPT, DATA, END)
# In how many schedules notices have been refused an hour ago, and are to be sent again in an hour that has seen none.
_REFUSED_BEFORE = 0.4
# How often an answer takes so long that somebody else takes the notice over, where mails fare ill at all.
_SLOW = 0.15
# Ways in which a mail fares ill, by how often: what happens at which point of its session.
_TROUBLES: tuple[tuple[int, Callable[[Random], tuple[int | str, str]]], ...] = (
    (10, lambda chance: (chance.choice((421, 450, 451, 550, 554)), chance.choice(_POINTS))),
    (4, lambda chance: (LOST, END)),
    (2, lambda chance: (CUT, END)),
    (2, lambda chance: (chance.choice((LOST, CUT)), chance.choice((CONNECT, MAIL, RCPT, DATA)))),
    (1, lambda chance: (chance.choice((421, CUT)), QUIT)),
    (1, lambda chance: (HANGING, chance.choice((END, END, RCPT)))),
)
# Its search path has the names of time found here first. A sequence's value is the same for all, whatever a transaction has seen.
_CLOCK = """CREATE SCHEMA test_clock;
CREATE SEQUENCE test_clock.passed MINVALUE 0 START 0;
CREATE FUNCTION test_clock.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS
    'BEGIN RETURN pg_catalog.clock_timestamp() + make_interval(secs => (SELECT last_value FROM test_clock.passed)); END';
CREATE FUNCTION test_clock.now() RETURNS timestamptz LANGUAGE plpgsql VOLATILE AS
    'BEGIN RETURN pg_catalog.now() + make_interval(secs => (SELECT last_value FROM test_clock.passed)); END';
DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET search_path = test_clock, public, pg_catalog', current_database()); END $$"""


class Clock:
    """The clock of a database, which runs ahead by as many seconds as a test lets pass; sessions know it that begin later."""

    def __init__(self, url: str) -> None:
        self._connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self._connection.execute(_CLOCK)

    def pass_time(self, seconds: int) -> None:
        """Let so many seconds pass for everybody, those in the middle of a transaction among them."""
        self._connection.execute("SELECT setval('test_clock.passed', last_value + %s) FROM test_clock.passed", [seconds])

    def put_right(self) -> None:
        """Let it say what time it is."""
        self._connection.execute("SELECT setval('test_clock.passed', 0)")

    def close(self) -> None:
        """Give up the connection."""
        self._connection.close()


class CrashError(Exception):
    """The end of a process: nothing of what it was about to do is done."""


class Fate:
    """The points that the process of one session passes, at one of which it may be struck; each of its commits is looked at."""

    def __init__(self, engine: Engine) -> None:
        self.points: Counter[str] = Counter()
        self.strikes: Counter[str] = Counter()
        self.claimed: list[str] = []
        self._uncountable = False
        self.ledger: Ledger
        self._left: int | None = None
        self._breaks = False
        self._wrote = False
        self._commit = engine.dialect.do_commit
        event.listen(engine, "before_cursor_execute", self._before, retval=True)
        event.listen(engine, "after_cursor_execute", lambda *given: self.come_to(f"after {locked_table(given[2])[0]}"))
        engine.dialect.do_commit = self._around_commit  # type: ignore[method-assign]

    def begin(self, left: int | None = None, among: str = "", *, breaks: bool = False, uncountable: bool = False) -> None:
        """Begin another operation that is struck after so many points `among` those so named, or not at all.

        Its process ends, or only its connection if it `breaks` at a commit. The number of notices may be `uncountable`.
        """
        self._left, self._among, self._breaks, self._uncountable, self.claimed = left, among, breaks, uncountable, []

    @property
    def struck(self) -> bool:
        """Whether it has come to that."""
        return self._left is not None and self._left < 0

    def come_to(self, point: str) -> None:
        """Pass a point, if nothing strikes there."""
        if self._left is None:
            return
        self.points[point] += 1
        if self._among not in point:
            return
        self._left -= 1
        if self._left == -1:
            self.strikes[point] += 1
            if self._breaks and point.endswith("COMMIT"):
                raise psycopg.OperationalError("the connection is gone")
            raise CrashError

    def _before(self, _connection: object, _cursor: object, sql: str, parameters: Any, *_rest: object) -> tuple[str, Any]:
        words = locked_table(sql)[0]
        self.come_to(f"before {words}")
        self._wrote |= not words.startswith("SELECT")
        counts = self._uncountable and sql.startswith("SELECT count") and "notice_claimed_at" in sql
        return ("SELECT 1 / 0", {}) if counts else (sql, parameters)

    def _around_commit(self, driver: Any) -> None:
        if driver.driver_connection.info.transaction_status != TransactionStatus.IDLE:
            self.come_to("before COMMIT")
            self._commit(driver)
            if self._wrote:
                self.claimed += self.ledger.observe()
            self._wrote = False
            self.come_to("after COMMIT")


_own = threading.local()


class Post(Mailer):
    """Sends to a server that does, at every message, what chance has it do; before and after are steps of the schedule."""

    def __init__(self, sink: MailSink, clock: Clock) -> None:
        super().__init__(sink.url, None, "scribe@example.org", patience=10)
        self.chance = Random()
        self.trouble = 0.0
        self.away = False
        self.fates: dict[str, Sent] = {}
        self._sink = sink
        self._clock = clock
        self._hasty = Mailer(sink.url, None, "scribe@example.org", patience=0.1)

    def check(self) -> None:
        """Ask when it is its turn."""
        step("ask for the mail server")
        super().check()

    def send(self, mail: Mail) -> Delivery:
        """Send when it is the mail's turn, and note what is known of it."""
        step("send the mail")
        _own.fate.come_to("before the mail")
        kind: int | str | None = None
        if not self.away and self.chance.random() < self.trouble:
            (trouble,) = self.chance.choices([trouble for _, trouble in _TROUBLES], [often for often, _ in _TROUBLES])
            kind, at = trouble(self.chance)
            self._sink.order(kind, at=at)
        delivery = self._hasty.send(mail) if kind == HANGING else super().send(mail)
        self.fates[mail.key] = delivery.result
        step("the mail is sent")
        if self.trouble and self.chance.random() < _SLOW:
            self._clock.pass_time(960)
            for _ in range(self.chance.randrange(30)):
                step("the answer takes its time")
        _own.fate.come_to("after the mail")
        return delivery


class Office:
    """Rows, a clock and a mail server for one schedule after the other, and the operations of its sessions."""

    def __init__(self, url: str, folder: Path, sink: MailSink) -> None:
        self.counted: Counter[str] = Counter()
        self._clock = Clock(url)
        self.watcher: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self.engine = create_engine(sqlalchemy_url(url))
        self.post = Post(sink, self._clock)
        self._sink = sink
        self._fates: dict[int, Fate] = {}
        self._rows = KeptRows(url)
        self._rows.put(EMPTY)
        house = House(self.engine, folder)
        for _ in range(_JOBS):
            house.job()
        self._claims = [house.claim(_LEASE_SECONDS) for _ in range(_JOBS)]
        Endings(house, sink).active()
        self._rows.keep(_START)

    def start(self, chance: Random) -> None:
        """Put the rows there again as they were, and let chance decide how it goes this time."""
        self._rows.put(_START)
        self._clock.put_right()
        self._sink.clear()
        self._chance = self.post.chance = chance
        self._dying, self._unread = chance.choice((0, 0.4, 0.8)), chance.choice((0, 0, 0.3))
        self.post.trouble, self.post.fates = 0, {}
        cap, lookback = chance.choice((1, 2, 2, 3)), chance.choice((24, 24, 24, 1))
        self.policy = Policy(enabled=True, recipient=RECIPIENT, lookback_hours=lookback, max_per_hour=cap)
        self.ledger = Ledger(self.watcher, cap, timedelta(hours=lookback), self.post.fates)
        for fate in self._fates.values():
            fate.ledger = self.ledger
        self._scanned = chance.choice((FAMILIES.values(), (FLYERS,)))
        if chance.random() < 0.05:
            self.watcher.execute("DELETE FROM outcome_activations")
        self._jobs = list(self._claims)
        self._flyers: list[UUID] = []
        self._flyers_end(self.engine, chance.randrange(2, 6))
        self.ledger.observe()
        if chance.random() < _REFUSED_BEFORE:
            self._sink.order(451, times=None)
            self._clock.pass_time(200)
            self._scan_undisturbed()
            self._sink.clear()
            self._clock.pass_time(3660)
            self._flyers_end(self.engine, chance.randrange(1, 4))
        self.post.trouble = chance.choice((0, 0.2, 0.5, 0.9))

    def tick(self) -> Operation:
        """A scan or the digests, by a process that may be struck."""
        kind = self._chance.choice(("scan", "scan", "digest"))
        (words,) = self._chance.choices(list(_STEPS), list(_STEPS.values()))
        among = f"{self._chance.choice(('before', 'after'))} {words}"
        few = _FIRST_FEW if words == "COMMIT" else 2
        left = self._chance.randrange(few) if self._chance.random() < self._dying else _NEVER
        breaks, uncountable = self._chance.random() < 0.3, self._chance.random() < self._unread
        policy = self.policy if self._chance.random() < 0.97 else replace(self.policy, recipient=None)
        policies = dict.fromkeys(self._scanned, policy)

        def run(engine: Engine) -> str:
            fate = _own.fate = self._fate_of(engine)
            fate.begin(left, among, breaks=breaks, uncountable=uncountable)
            try:
                done = (scan_outcomes if kind == "scan" else send_digests)(engine, policies, self.post)
                return "done" if done is not None else "not the leader"
            except CrashError:
                said = "crashed"
            except DatabaseError:
                if not fate.struck:
                    raise
                said = "lost its connection"
            self.ledger.lost.update(fate.claimed)
            # with a process its sessions end, and whatever they hold
            engine.dispose()
            return said

        return Operation(kind, "", run)

    def event(self) -> Operation:
        """Something that happens outside: time passes, a job ends or is written to, the mail server goes or comes."""
        kinds: dict[str, tuple[int, Callable[[Engine], None]]] = {
            "time": (6, self._time_passes),
            "flyer": (4, self._flyers_end),
            "job": (3, self._job_ends),
            "touch": (2, self._flyer_changes),
            "server": (1, self._server_goes_or_comes),
        }
        (kind,) = self._chance.choices(list(kinds), [often for often, _ in kinds.values()])

        def run(engine: Engine) -> None:
            self._fate_of(engine).begin()
            kinds[kind][1](engine)

        return Operation(kind, "", run)

    def rest(self) -> None:
        """Let time pass and processes come that nothing strikes, until nothing is left to be done; complain if that never is."""
        self.post.trouble = 0
        if self.post.away:
            self._server_goes_or_comes(self.engine)
        for _ in range(20):
            if not self.ledger.undone():
                break
            self._clock.pass_time(1900)
            self._scan_undisturbed()
            send_digests(self.engine, dict.fromkeys(FAMILIES.values(), self.policy), self.post)
            self.ledger.observe()
        else:
            self.ledger.complaints += [f"something is never done with {row}" for row in self.ledger.undone()]
        unknown = {key for key, sent in self.post.fates.items() if sent is Sent.UNKNOWN}
        self.ledger.lost |= unknown
        taken = set(map(key_of, self._sink.messages))
        self.ledger.complaints += [
            f"{key} is {sent.value} for its sender"
            for key, sent in self.post.fates.items()
            if sent is not Sent.UNKNOWN and (sent is Sent.DELIVERED) != (key in taken)
        ]
        self.ledger.judge(self._sink.messages)
        self.counted.update(f"mail {sent.value}" for sent in self.post.fates.values())
        self.counted.update(self.ledger.counted)

    @property
    def points(self) -> tuple[Counter[str], Counter[str]]:
        """How often each point was passed, and how often somebody was struck there."""
        fates = self._fates.values()
        return sum((fate.points for fate in fates), Counter()), sum((fate.strikes for fate in fates), Counter())

    def close(self) -> None:
        """Give up the connections."""
        self.engine.dispose()
        self._rows.close()
        self.watcher.close()
        self._clock.close()

    def _fate_of(self, engine: Engine) -> Fate:
        if id(engine) not in self._fates:
            self._fates[id(engine)] = Fate(engine)
            self._fates[id(engine)].ledger = self.ledger
        return self._fates[id(engine)]

    def _scan_undisturbed(self) -> None:
        fate = _own.fate = self._fate_of(self.engine)
        fate.begin()
        scan_outcomes(self.engine, dict.fromkeys(FAMILIES.values(), self.policy), self.post)

    def _time_passes(self, _: Engine) -> None:
        step("time passes")
        self._clock.pass_time(self._chance.choice((30, 120, 300, 960, 960, 1900, 3660)))

    def _flyers_end(self, engine: Engine, count: int = 1) -> None:
        statement = text(
            """INSERT INTO flyer_tagging_jobs (id, status, passed, failures, error, created_at, updated_at)
               VALUES (:id, :status, :passed, to_jsonb(CAST(:failures AS text[])), :error, clock_timestamp(),
                       clock_timestamp() - make_interval(secs => :ago))"""
        )
        ended = []
        for _ in range(count):
            shape = self._chance.choice([*SHAPES, *["pipeline_error"] * 6])
            job_id = UUID(int=self._chance.getrandbits(128), version=4)
            self.ledger.classes[str(job_id)] = shape
            self._flyers.append(job_id)
            values = {"passed": None, "failures": [], "error": None, "ago": self._chance.choice((0, 60, 200, 200, 600))}
            ended.append(values | dict(SHAPES[shape]) | {"id": job_id})
        in_transaction(engine, lambda connection: connection.execute(statement, ended))

    def _flyer_changes(self, engine: Engine) -> None:
        """Its service writes to it once more, or begins it anew; what is recorded is left alone."""
        changed = self._chance.choice(("progress = '{}'", "progress = '{}'", "status = 'queued'"))
        statement = text(f"UPDATE flyer_tagging_jobs SET {changed} WHERE id = :id AND outcome_recorded_at IS NULL")
        in_transaction(engine, lambda connection: connection.execute(statement, {"id": self._chance.choice(self._flyers)}))

    def _job_ends(self, engine: Engine) -> None:
        if self._jobs:
            claim, fails = self._jobs.pop(), self._chance.random() < 0.8
            self.ledger.classes[str(claim.job_id)] = "pipeline_error" if fails else "cancelled"
            if fails:
                end_attempt(engine, claim, Category.AUTHENTICATION)
            else:
                cancel_job(engine, claim.job_id, Operator("operator"))

    def _server_goes_or_comes(self, _: Engine) -> None:
        step("the mail server goes or comes")
        (self._sink.start if self.post.away else self._sink.stop)()
        self.post.away = not self.post.away
