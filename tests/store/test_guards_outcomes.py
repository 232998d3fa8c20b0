"""Guards of the outcome record that only a second scan, or a change at the wrong moment, would miss. `guards.toml` names them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Row, event

from scribe_pipeline.database import DatabaseError, in_transaction
from scribe_pipeline.outcomes import Family, Mail, OutcomeClass
from scribe_pipeline.outcomes.mail import Delivery
from scribe_pipeline.outcomes.records import (
    NoticeClaim,
    Recorded,
    claim_again,
    claim_digest,
    give_up,
    record,
    release_digest,
    settle,
    take_turn,
    to_be_retried,
    unrecorded,
)
from tests.endings import FLYERS, JOBS, Endings
from tests.houses import StoppedError

FACTS: dict[str, Any] = {"failures": [], "error": None}


def read(endings: Endings) -> list[Row[Any]]:
    """The rows that a scan would record now."""
    return list(in_transaction(endings.house.engine, partial(unrecorded, family=FLYERS, policy=endings.policy)))


def recorded(endings: Endings, row: Row[Any]) -> Recorded | None:
    """Record a row as a failure, as a scan does that has read it."""
    return record(endings.house.engine, FLYERS, row, OutcomeClass.PIPELINE_ERROR, FACTS, endings.policy)


def claimed(endings: Endings) -> list[NoticeClaim]:
    """Two notices on their way, of jobs that ended at the same moment."""
    endings.flyers(2)
    rows = read(endings)
    assert [recorded(endings, row) for row in rows] == [Recorded("sending", uncounted=False)] * 2
    return [NoticeClaim(FLYERS, row, OutcomeClass.PIPELINE_ERROR, FACTS, 1) for row in rows]


def waiting(endings: Endings) -> list[Row[Any]]:
    """Two notices that wait to be sent again, as a scan has read them."""
    assert [settle(endings.house.engine, claim, sent=False) for claim in claimed(endings)] == ["pending", "pending"]
    return list(in_transaction(endings.house.engine, partial(to_be_retried, family=FLYERS, policy=endings.policy)))


def put(endings: Endings, job_id: UUID, notice: str, attempts: int) -> None:
    """Bring a notice to another state, as another scan would have done meanwhile."""
    endings.unguarded(
        """UPDATE flyer_tagging_jobs SET outcome_facts = outcome_facts
               || jsonb_build_object('notice', CAST(:notice AS text), 'notice_attempts', CAST(:attempts AS integer))
           WHERE id = :id""",
        notice=notice,
        attempts=attempts,
        id=job_id,
    )


def test_an_outcome_is_written_of_one_row(endings: Endings) -> None:
    """R177: two jobs that ended at the very same time are two."""
    endings.flyers(2)
    endings.unguarded("UPDATE flyer_tagging_jobs SET updated_at = (SELECT min(updated_at) FROM flyer_tagging_jobs)")
    assert endings.scan().recorded == {"pipeline_error": 2}


@pytest.mark.parametrize(
    "change",
    ["error = error", "status = 'processing'", "status = 'done', updated_at = updated_at", "outcome"],
    ids=["written", "begun anew", "status", "recorded"],
)
def test_a_row_that_has_changed_since_it_was_read_is_let_alone(endings: Endings, change: str) -> None:
    """R177, R178: whoever is late writes nothing and tells nobody, be it that the row was written or recorded meanwhile."""
    endings.flyer()
    (row,) = read(endings)
    if change == "outcome":
        assert recorded(endings, row) is not None
    else:
        # the status alone: changed twice in one transaction, a row has the time that it had before
        (endings.unguarded if "updated_at" in change else endings.house.execute)(f"UPDATE flyer_tagging_jobs SET {change}")
    before = endings.outcome(row.id)
    assert recorded(endings, row) is None
    assert endings.outcome(row.id) == before


def test_a_row_that_was_recorded_meanwhile_counts_for_the_other_scan(endings: Endings, monkeypatch: pytest.MonkeyPatch) -> None:
    """R178: the tick that came second tells nobody of it and calls it no trouble."""
    endings.flyer()
    monkeypatch.setattr("scribe_pipeline.outcomes.scan.record", lambda *_: None)
    done = endings.scan()
    assert (done.recorded, done.notices, done.problems, endings.mails) == ({}, {}, {}, [])


def test_one_claim_is_settled_alone(endings: Endings) -> None:
    """R180, R183: of two notices on their way, of the same attempt, the one that was sent is."""
    first, second = claimed(endings)
    assert settle(endings.house.engine, first, sent=True) == "sent"
    assert (endings.notice(first.row.id), endings.notice(second.row.id)) == (("sent", 1), ("sending", 1))


@pytest.mark.parametrize(("notice", "attempts"), [("pending", 1), ("sending", 2)], ids=["state", "attempt"])
def test_a_claim_that_was_taken_over_settles_nothing(endings: Endings, notice: str, attempts: int) -> None:
    """R183: who comes back after another has taken over leaves what that one has written."""
    claim, _ = claimed(endings)
    put(endings, claim.row.id, notice, attempts)
    assert settle(endings.house.engine, claim, sent=False) == "lost"
    assert endings.notice(claim.row.id) == (notice, attempts)


def test_one_notice_is_given_up_alone(endings: Endings) -> None:
    """R183: the others wait on."""
    first, second = waiting(endings)
    assert give_up(endings.house.engine, FLYERS, first, "failed")
    assert (endings.notice(first.id), endings.notice(second.id)) == (("failed", 1), ("pending", 1))


@pytest.mark.parametrize(("notice", "attempts"), [("sending", 1), ("pending", 2)], ids=["state", "attempt"])
def test_a_notice_that_has_gone_on_is_let_alone(endings: Endings, notice: str, attempts: int) -> None:
    """R183: who has read an earlier state of a notice neither claims it nor gives it up."""
    row, _ = waiting(endings)
    put(endings, row.id, notice, attempts)
    assert not give_up(endings.house.engine, FLYERS, row, "failed")
    assert claim_again(endings.house.engine, FLYERS, row, endings.policy) == "lost"
    assert endings.notice(row.id) == (notice, attempts)


def test_a_notice_s_own_claim_does_not_stand_in_its_way(endings: Endings) -> None:
    """R185, R195: when the hour's room is one notice, that one may be sent again."""
    endings.policy = replace(endings.policy, max_per_hour=1)
    endings.sink.order(451)
    job_id = endings.flyer()
    endings.scan()
    assert endings.scan().notices == {"sent": 1}
    assert endings.notice(job_id) == ("sent", 2)


@contextmanager
def turn_of(endings: Endings, family: Family) -> Iterator[None]:
    """Another scan counts and claims; whoever waits for it here is refused after half a second."""
    limit = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = 500', current_database()); END $$"
    endings.house.execute(limit)
    endings.house.engine.dispose()
    with endings.house.engine.connect() as other:
        take_turn(other, family)
        yield
        other.rollback()


@pytest.mark.parametrize("what", ["first claim", "claim again", "digest", "release"])
def test_scans_of_a_family_count_one_after_the_other(endings: Endings, what: str) -> None:
    """R183, R185, R192: two that count at once would both find room; those of another family are not in the way."""
    engine = endings.house.engine
    again, _ = waiting(endings)
    endings.flyer()
    (row,) = read(endings)
    claims = {
        "first claim": lambda: recorded(endings, row),
        "claim again": lambda: claim_again(engine, FLYERS, again, endings.policy),
        "digest": lambda: claim_digest(engine, FLYERS, lambda _: None),
        "release": lambda: release_digest(engine, FLYERS, datetime.now(UTC)),
    }
    with turn_of(endings, FLYERS), pytest.raises(DatabaseError) as caught:
        claims[what]()
    assert caught.value.sqlstate == "55P03"
    with turn_of(endings, JOBS):
        claims[what]()


def test_what_waits_is_let_alone_while_notices_are_off(endings: Endings) -> None:
    """R205: nothing is sent, nothing given up; it goes on when they are on again."""
    row, _ = waiting(endings)
    assert endings.scan(replace(endings.policy, enabled=False)).notices == {}
    assert (endings.notice(row.id), endings.mails) == (("pending", 1), [])
    assert endings.scan().notices == {"sent": 2}


def test_a_leader_steps_back(endings: Endings) -> None:
    """R171: when a tick is over no session of its process leads, so that any other may."""
    endings.scan()
    held = "SELECT count(*) FROM pg_locks JOIN pg_database ON oid = database WHERE datname = current_database()"
    assert endings.house.value(f"{held} AND locktype = 'advisory'") == 0


def test_a_leader_that_is_stopped_steps_back(endings: Endings, monkeypatch: pytest.MonkeyPatch) -> None:
    """R171, R204: it says so itself; that its session is over the server may notice when the next scan has left."""
    said: list[str] = []

    def stop(_: Mail) -> Delivery:
        event.listen(endings.house.engine, "before_cursor_execute", lambda *asked: said.append(asked[2]))
        raise StoppedError

    monkeypatch.setattr(endings.mailer, "send", stop)
    endings.flyer()
    with pytest.raises(StoppedError):
        endings.scan()
    assert ["pg_advisory_unlock" in statement for statement in said] == [True]
