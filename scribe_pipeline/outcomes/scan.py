"""One tick of the scan: record the outcomes of jobs that have ended, tell of failures, send again what was not delivered.

One process at a time is the leader; that is a matter of economy, as the guards of `records` keep two from harming each other. No
transaction is open while a mail is sent.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

from sqlalchemy import Connection, Engine, Row, exc, text

from scribe_pipeline.database import DatabaseError, in_transaction, translated
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.outcomes.classes import OutcomeClass, classify
from scribe_pipeline.outcomes.families import Family
from scribe_pipeline.outcomes.mail import Mailer, Sent
from scribe_pipeline.outcomes.notices import failure_mail
from scribe_pipeline.outcomes.predicates import VERSION
from scribe_pipeline.outcomes.records import (
    MAX_SENDS,
    NOT_MIGRATED,
    ROWS_A_TICK,
    UNMIGRATED,
    NoticeClaim,
    Policy,
    activate,
    claim_again,
    give_up,
    record,
    settle,
    to_be_retried,
    unrecorded,
)

_LEADER = 7_274_503
_MOST_SEEN = 10 * ROWS_A_TICK


@dataclass
class Scan:
    """What came of a tick: outcomes recorded by class, notices by the state they are in now, and what went wrong, each once."""

    recorded: Counter[str] = field(default_factory=Counter)
    notices: Counter[str] = field(default_factory=Counter)
    problems: dict[str, None] = field(default_factory=dict)

    def tell(self, notice: str) -> None:
        """Count a notice in the state that it is in now; one that is lost to another scan is for that one to count."""
        if notice != "lost":
            self.notices[notice] += 1

    def trouble(self, family: Family, problem: str) -> None:
        """Note something that an operator is to see."""
        self.problems[f"{family.name}: {problem}"] = None


def scan_outcomes(engine: Engine, families: Mapping[Family, Policy], mailer: Mailer, *, send_again: bool = True) -> Scan | None:
    """Do one tick for each family, and say what came of it; None if another process is at it.

    Whoever comes more often than every few minutes does not `send_again`: three attempts in a row are soon spent.

    A family whose columns are not there is reported as a problem, and the others go on. Other trouble with one is raised when the
    others have had their turn (DatabaseError).
    """
    with _leading(engine) as leads:
        if not leads:
            return None
        done = Scan()
        trouble: DatabaseError | None = None
        for family, policy in families.items():
            try:
                in_transaction(engine, partial(activate, family=family))
                # those first, or what has just failed would fail again for the same reason, and have one attempt less
                if policy.enabled and send_again:
                    _send_again(engine, family, policy, mailer, done)
                _record_ended(engine, family, policy, mailer, done)
            except DatabaseError as error:
                if error.sqlstate in NOT_MIGRATED:
                    done.trouble(family, UNMIGRATED)
                else:
                    trouble = error
        if trouble is not None:
            raise trouble
        return done


@contextmanager
def _leading(engine: Engine) -> Iterator[bool]:
    """Be the leader, unless somebody is. It ends with the session, so with the process if that is killed."""
    try:
        connection = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
    except exc.DBAPIError as error:
        raise translated(error) from None
    leads: bool | None = None
    stepped_back = False
    try:
        leads = _take_lead(connection)
        yield leads
    finally:
        try:
            stepped_back = leads is not None and (not leads or _step_back(connection))
        finally:
            if not stepped_back:
                connection.invalidate()  # which ends the session, and with it the lead
            connection.close()


def _take_lead(connection: Connection) -> bool:
    try:
        return bool(connection.scalar(text("SELECT pg_try_advisory_lock(:key)"), {"key": _LEADER}))
    except exc.DBAPIError as error:
        raise translated(error) from None


def _step_back(connection: Connection) -> bool:
    try:
        return bool(connection.scalar(text("SELECT pg_advisory_unlock(:key)"), {"key": _LEADER}))
    except exc.DBAPIError:
        return False


@contextmanager
def _apart(family: Family, row: Row[Any], done: Scan) -> Iterator[None]:
    """Let a row with which the database refuses to do something keep no other waiting."""
    try:
        yield
    except DatabaseError as error:
        if error.category is Category.UNAVAILABLE or error.sqlstate in NOT_MIGRATED:
            raise
        done.trouble(family, f"{row.id} stays as it is: {error.message}")


def _record_ended(engine: Engine, family: Family, policy: Policy, mailer: Mailer, done: Scan) -> None:
    """Record what a tick takes. Rows that the database refuses do not count, or enough of them would keep all others waiting."""
    seen: set[UUID] = set()
    left = ROWS_A_TICK
    while left and len(seen) < _MOST_SEEN:
        rows = in_transaction(engine, partial(unrecorded, family=family, policy=policy, but_for=seen, limit=left))
        if not rows:
            break
        for row in rows:
            seen.add(row.id)
            with _apart(family, row, done):
                _record(engine, family, row, policy, mailer, done)
                left -= 1


def _record(engine: Engine, family: Family, row: Row[Any], policy: Policy, mailer: Mailer, done: Scan) -> None:
    outcome = classify(family.verdict(row))
    facts = in_transaction(engine, partial(family.facts, row=row)) | {"predicates_version": VERSION}
    written = record(engine, family, row, outcome, facts, policy)
    if written is None:
        return  # another scan was first, or the row has changed
    done.recorded[outcome.value] += 1
    if written.uncounted:
        done.trouble(family, "the number of notices sent within the hour cannot be read: failures wait for the digest")
    if written.notice == "unconfigured":
        done.trouble(family, f"nobody is told of failures: set {family.unset}")
    notice = written.notice
    if notice == "sending":
        notice = _send(engine, NoticeClaim(family, row, outcome, facts, 1), policy, mailer, done)
    done.tell(notice)


def _send_again(engine: Engine, family: Family, policy: Policy, mailer: Mailer, done: Scan) -> None:
    reachable: bool | None = None
    for row in in_transaction(engine, partial(to_be_retried, family=family, policy=policy)):
        given_up = "failed" if row.is_late or row.attempts >= MAX_SENDS else "unconfigured" if policy.recipient is None else None
        if given_up is None and reachable is None:
            reachable = _answers(family, mailer, done)
        with _apart(family, row, done):
            if given_up is not None:
                done.tell(given_up if give_up(engine, family, row, given_up) else "lost")
            elif not reachable:
                # an attempt is not spent on a server that is away: it may be for longer than three ticks
                done.tell(row.notice)
            else:
                done.tell(_claim_and_send(engine, family, row, policy, mailer, done))


def _claim_and_send(engine: Engine, family: Family, row: Row[Any], policy: Policy, mailer: Mailer, done: Scan) -> str:
    notice = claim_again(engine, family, row, policy)
    if notice != "sending":
        return notice
    claim = NoticeClaim(family, row, OutcomeClass(row.outcome_class), row.outcome_facts, row.attempts + 1)
    return _send(engine, claim, policy, mailer, done)


def _answers(family: Family, mailer: Mailer, done: Scan) -> bool:
    try:
        mailer.check()
    except ScribeError as error:
        done.trouble(family, error.message)
        return False
    return True


def _send(engine: Engine, claim: NoticeClaim, policy: Policy, mailer: Mailer, done: Scan) -> str:
    """Send a claimed notice and write down what became of it; return the state that it is in."""
    delivery = mailer.send(failure_mail(claim, policy))
    if delivery.problem is not None:
        done.trouble(claim.family, delivery.problem)
    notice = settle(engine, claim, sent=delivery.result is Sent.DELIVERED)
    if notice == "failed":
        done.trouble(claim.family, f"the notice of {claim.row.id} is given up after {claim.attempt} attempts")
    return notice
