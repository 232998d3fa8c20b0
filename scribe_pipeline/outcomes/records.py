"""The statements of this room: rows to record, claims of notices and of digests, and what became of them.

Each is one short transaction whose WHERE repeats what it depends on. Whatever depends on time asks the database's clock; whatever
depends on how much was sent holds the family's turn, so that two scans never count past each other.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Boolean,
    ColumnElement,
    Connection,
    Engine,
    Integer,
    Row,
    Text,
    and_,
    cast,
    exc,
    func,
    literal,
    literal_column,
    or_,
    select,
    text,
    true,
    update,
)
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP, insert

from scribe_pipeline.database import after, in_transaction, one_of
from scribe_pipeline.database.tables import outcome_activations
from scribe_pipeline.outcomes.classes import OutcomeClass
from scribe_pipeline.outcomes.families import FAMILIES, Family

SETTLING_SECONDS, ROWS_A_TICK = 120, 25
STALE_SECONDS, MAX_SENDS = 900, 3
DIGEST_CHUNK = 50
# A column or a table that is not there: the program is ahead of the database.
NOT_MIGRATED = ("42703", "42P01")
# A row, or a turn, that somebody else has for too long.
LOCKED = "55P03"
UNMIGRATED = "outcomes cannot be recorded before the database is migrated: run scribe db upgrade"
_HOUR = 3600
# The first key of this room's advisory locks; the second is the family's place.
_LOCKS = 7_274_502
# The times that Python can hold, but for a day.
_FIRST, _LAST = literal(datetime(1, 1, 2, tzinfo=UTC)), literal(datetime(9999, 12, 30, tzinfo=UTC))
_STAMP = 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'

# Parts of the facts, written as the partial indexes have them, so that the planner sees that they serve.
_notice = literal_column("outcome_facts ->> 'notice'", Text)
_attempts: ColumnElement[Any] = literal_column("(outcome_facts ->> 'notice_attempts')::integer", Integer)
_is_digest = literal_column("outcome_facts ->> 'notice' = 'digest'", Boolean)
_is_undelivered = literal_column("outcome_facts ->> 'notice' IN ('pending', 'sending')", Boolean)
_claimed_at = literal_column("(outcome_facts ->> 'notice_claimed_at') COLLATE \"C\"", Text)


@dataclass(frozen=True)
class Policy:
    """Who is told of failures, and how often. Without a recipient (or a way to reach him) nobody is."""

    enabled: bool
    recipient: str | None
    lookback_hours: float
    max_per_hour: int
    link_template: str | None = None


@dataclass(frozen=True)
class Recorded:
    """What was written of a row: the state of its notice, and whether the number of notices sent could not be read."""

    notice: str
    uncounted: bool


@dataclass(frozen=True)
class NoticeClaim:
    """A notice that this process is about to send; the fence is the state and the number of the attempt."""

    family: Family
    row: Row[Any]
    outcome: OutcomeClass
    facts: Mapping[str, Any]
    attempt: int

    @property
    def key(self) -> str:
        """A name that no other claim has."""
        return f"{self.family.kind}-{self.row.id}-{self.attempt}"

    @property
    def fence(self) -> ColumnElement[bool]:
        """True for the row while this claim holds its notice."""
        return and_(self.family.table.c.id == self.row.id, _notice == "sending", _attempts == self.attempt)


def activate(connection: Connection, family: Family) -> None:
    """Write down that the family is scanned from now on, unless it is already; a time to come was a clock that was wrong."""
    now = func.clock_timestamp()
    first = insert(outcome_activations).values(family=family.name)
    connection.execute(
        first.on_conflict_do_update(
            index_elements=["family"], set_={"activated_at": now}, where=outcome_activations.c.activated_at > now
        )
    )


def unrecorded(
    connection: Connection, family: Family, policy: Policy, but_for: Collection[UUID] = (), limit: int = ROWS_A_TICK
) -> Sequence[Row[Any]]:
    """Return the rows that ended first of those that ended two minutes ago or earlier and have no outcome, `but_for` some.

    `is_history` is true of those that nobody wants to be told of: they ended before the family was scanned, or too long ago.
    """
    jobs = family.table
    activated = select(outcome_activations.c.activated_at).where(outcome_activations.c.family == family.name).scalar_subquery()
    history = or_(jobs.c.updated_at < activated, jobs.c.updated_at < after(-policy.lookback_hours * _HOUR))
    others = ~one_of(jobs.c.id, list(but_for)) if but_for else true()
    first = select(*_columns(family), history.label("is_history")).where(_ready(family), others)
    return list(connection.execute(first.order_by(jobs.c.updated_at, jobs.c.id).limit(limit)))


def is_recordable(connection: Connection, family: Family) -> bool:
    """Whether the database has the family's table with all columns: not before it is migrated."""
    there = text("SELECT attname FROM pg_attribute WHERE attrelid = to_regclass(:name) AND attnum > 0 AND NOT attisdropped")
    return {*connection.scalars(there, {"name": family.name})} >= {*family.table.columns.keys()}


def oldest_unrecorded(connection: Connection, family: Family) -> Row[Any] | None:
    """Return the row that a scan would take first, with `waits`: for how many seconds it could have been taken."""
    jobs = family.table
    waits = func.extract("epoch", func.clock_timestamp() - jobs.c.updated_at) - SETTLING_SECONDS
    columns = (jobs.c.id, jobs.c.updated_at, waits.label("waits"))
    return connection.execute(select(*columns).where(_ready(family)).order_by(jobs.c.updated_at, jobs.c.id).limit(1)).one_or_none()


def settling(connection: Connection, family: Family) -> int:
    """Return how many rows ended less than two minutes ago, which a scan leaves alone as yet."""
    recent = family.table.c.updated_at > select(after(-SETTLING_SECONDS)).scalar_subquery()
    return connection.execute(select(func.count()).select_from(family.table).where(_open(family), recent)).scalar_one()


def record(
    engine: Engine, family: Family, row: Row[Any], outcome: OutcomeClass, facts: dict[str, Any], policy: Policy
) -> Recorded | None:
    """Write a row's outcome if it has none yet and is still what it was when it was read; None if not.

    A failure that somebody is to be told of is claimed for its first mail at the same time.
    """
    jobs = family.table

    def write(connection: Connection) -> Recorded | None:
        _be_brief(connection)
        notice, uncounted = "none", False
        if outcome.is_failure and policy.enabled:
            if row.is_history:
                notice = "backfill"
            elif policy.recipient is None:
                notice = "unconfigured"
            else:
                take_turn(connection, family)
                claimed = notices_claimed(connection, family)
                uncounted = claimed is None
                notice = "digest" if claimed is None or claimed >= policy.max_per_hour else "sending"
        changed = connection.execute(
            update(jobs)
            .where(
                jobs.c.id == row.id,
                jobs.c.status == row.status,
                jobs.c.updated_at == row.updated_at,
                jobs.c.outcome_recorded_at.is_(None),
            )
            .values(
                outcome_class=outcome.value,
                outcome_facts=literal(facts, JSONB).op("||")(_state(notice, int(notice == "sending"))),
                outcome_recorded_at=func.clock_timestamp(),
            )
        )
        return Recorded(notice, uncounted) if changed.rowcount == 1 else None

    return in_transaction(engine, write)


def take_turn(connection: Connection, family: Family) -> None:
    """Wait until no other transaction counts or claims notices of this family."""
    connection.execute(text("SELECT pg_advisory_xact_lock(:room, :place)"), {"room": _LOCKS, "place": _place(family)})


def notices_claimed(connection: Connection, family: Family, but_for: UUID | None = None) -> int | None:
    """Return how many notices were claimed within the last hour, whatever became of them; None if that cannot be read."""
    jobs = family.table
    # what was claimed by a clock that was ahead does not count until its time has come
    since, now = (select(func.to_char(func.timezone("UTC", time), _STAMP)).scalar_subquery() for time in (after(-_HOUR), after(0)))
    counted = select(func.count()).select_from(jobs).where(since < _claimed_at, now >= _claimed_at)
    if but_for is not None:
        counted = counted.where(jobs.c.id != but_for)
    try:
        with connection.begin_nested():
            return connection.scalar(counted)
    except exc.DBAPIError:
        return None


def to_be_retried(connection: Connection, family: Family, policy: Policy) -> Sequence[Row[Any]]:
    """Return rows whose notice waits to be sent again, or was claimed 15 minutes ago and not heard of since; first claimed first.

    `is_late` is true of those that ended too long ago.
    """
    jobs = family.table
    late = jobs.c.updated_at < after(-policy.lookback_hours * _HOUR)
    claimed_at = cast(_claimed_at, TIMESTAMP(timezone=True))
    stale = or_(claimed_at < after(-STALE_SECONDS), claimed_at > after(STALE_SECONDS))
    waiting = select(*_columns(family), late.label("is_late"), _notice.label("notice"), _attempts.label("attempts"))
    return list(
        connection.execute(waiting.where(_is_undelivered, or_(_notice == "pending", stale)).order_by(_claimed_at, jobs.c.id))
    )


def claim_again(engine: Engine, family: Family, row: Row[Any], policy: Policy) -> str:
    """Claim a notice for another mail, or leave it to the digest if the hour's are spent; return the state that it is in.

    `lost` if somebody else has claimed it. The notice's own earlier claim does not count against it.
    """

    def write(connection: Connection) -> str:
        _be_brief(connection)
        take_turn(connection, family)
        others = notices_claimed(connection, family, but_for=row.id)
        spent = others is None or others >= policy.max_per_hour
        notice, attempts = ("digest", row.attempts) if spent else ("sending", row.attempts + 1)
        state = _kept_claim(notice) if spent else _state(notice, attempts)
        return notice if _step(connection, family, row, state) else "lost"

    return in_transaction(engine, write)


def give_up(engine: Engine, family: Family, row: Row[Any], notice: str) -> bool:
    """Let a notice that is not to be sent again be `failed` or `unconfigured`, unless somebody else has claimed it."""

    def write(connection: Connection) -> bool:
        _be_brief(connection)
        return _step(connection, family, row, _kept_claim(notice))

    return in_transaction(engine, write)


def _step(connection: Connection, family: Family, row: Row[Any], state: ColumnElement[Any]) -> bool:
    jobs = family.table
    same = and_(jobs.c.id == row.id, row.notice == _notice, row.attempts == _attempts)
    statement = update(jobs).where(same).values(outcome_facts=jobs.c.outcome_facts.op("||")(state))
    return connection.execute(statement).rowcount == 1


def settle(engine: Engine, claim: NoticeClaim, *, sent: bool) -> str:
    """Write down what became of a claim, and return the state that its notice is in; `lost` if somebody else has taken over."""
    jobs = claim.family.table
    notice = "sent" if sent else "failed" if claim.attempt >= MAX_SENDS else "pending"
    values: dict[str, Any] = {"outcome_facts": jobs.c.outcome_facts.op("||")(_kept_claim(notice))}
    if sent:
        values["failure_notified_at"] = func.clock_timestamp()
    statement = update(jobs).where(claim.fence).values(**values)

    def write(connection: Connection) -> int:
        _be_brief(connection)
        return connection.execute(statement).rowcount

    return notice if in_transaction(engine, write) == 1 else "lost"


def claim_digest(engine: Engine, family: Family, stamped: Callable[[datetime], object]) -> tuple[datetime, Sequence[Row[Any]]]:
    """Claim all rows that wait for the digest, under one stamp, unless there was a digest within the last hour.

    Return the stamp and the rows that were won: none if there is nothing to be told, or it is too early. `stamped` hears the stamp
    before it is written: after a DatabaseError nobody knows whether it was.
    """
    jobs = family.table
    waiting = and_(_is_digest, jobs.c.failure_notified_at.is_(None))

    def claim(connection: Connection) -> tuple[datetime, Sequence[Row[Any]]]:
        _be_brief(connection)
        take_turn(connection, family)
        stamp, won = connection.execute(select(func.clock_timestamp())).scalar_one(), list[Row[Any]]()
        last = select(func.max(jobs.c.failure_notified_at)).where(_is_digest, jobs.c.failure_notified_at <= stamp)
        # measured by the stamp that the next digest is measured by
        if connection.scalar(select(func.coalesce(last.scalar_subquery() > stamp - timedelta(seconds=_HOUR), False))):
            return stamp, won
        stamped(stamp)
        while ids := connection.scalars(
            select(jobs.c.id).where(waiting).order_by(jobs.c.id).limit(DIGEST_CHUNK).with_for_update(skip_locked=True)
        ).all():
            claimed = update(jobs).where(one_of(jobs.c.id, ids), waiting).values(failure_notified_at=stamp)
            won += connection.execute(
                claimed.returning(jobs.c.id, jobs.c.updated_at, jobs.c.outcome_class, jobs.c.outcome_facts)
            ).all()
        return stamp, won

    return in_transaction(engine, claim)


def release_digest(engine: Engine, family: Family, stamp: datetime) -> int:
    """Let the rows of a digest that nobody has received wait for the next one, and return how many."""
    jobs = family.table
    own = and_(_is_digest, jobs.c.failure_notified_at == stamp)
    statement = update(jobs).where(own).values(failure_notified_at=None)

    def release(connection: Connection) -> int:
        _be_brief(connection)
        # a claim whose answer was lost may not be over yet
        take_turn(connection, family)
        return connection.execute(statement).rowcount

    return in_transaction(engine, release)


def _be_brief(connection: Connection) -> None:
    """Wait for no row, and for no turn, longer than five seconds: other services may hold a row for as long as they like."""
    connection.execute(text("SET LOCAL lock_timeout = '5s'"))


def _columns(family: Family) -> list[Any]:
    """A job's columns. When it began may be a time that Python does not have; it then counts as the next one that it has."""
    began = func.greatest(_FIRST, func.least(family.table.c.created_at, _LAST)).label("created_at")
    return [began if column.name == "created_at" else column for column in family.table.columns]


def _ready(family: Family) -> ColumnElement[bool]:
    ended_at = family.table.c.updated_at
    return and_(_open(family), ended_at <= select(after(-SETTLING_SECONDS)).scalar_subquery(), ended_at > _FIRST)


def _open(family: Family) -> ColumnElement[bool]:
    """True for a row that has ended and has no outcome."""
    ended = literal_column(f"status IN ({', '.join(repr(status) for status in family.terminal)})", Boolean)
    return and_(ended, family.table.c.outcome_recorded_at.is_(None))


def _state(notice: str, attempts: int) -> ColumnElement[Any]:
    """The notice's part of the facts as an update writes it; a claim says when it was made."""
    claimed_at = func.to_char(func.timezone("UTC", func.clock_timestamp()), _STAMP) if attempts else None
    entries = ("notice", cast(notice, Text), "notice_attempts", attempts, "notice_claimed_at", claimed_at)
    return func.jsonb_build_object(*entries)


def _kept_claim(notice: str) -> ColumnElement[Any]:
    """The same for a step that is no claim: number and time of the last claim stay."""
    return func.jsonb_build_object("notice", cast(notice, Text))


def _place(family: Family) -> int:
    return list(FAMILIES).index(family.name)
