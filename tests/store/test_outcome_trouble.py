"""Rows that are locked, refused or have impossible times, and a clock that was wrong: none of it keeps any other row waiting."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import Connection, event, text

from scribe_pipeline.database import DatabaseError
from scribe_pipeline.outcomes import Digests, Family, Mail, Mailer, Scan, records, send_digests
from scribe_pipeline.outcomes.mail import Delivery, Sent
from scribe_pipeline.outcomes.predicates import VERSION
from tests.endings import FLYERS, JOBS, Endings

HOUR = 3600
FAMILIES = pytest.mark.parametrize("family", [FLYERS, JOBS], ids=lambda family: family.name)


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody wait for a lock for as long as is allowed."""
    monkeypatch.setattr(records, "_be_brief", lambda connection: connection.execute(text("SET LOCAL lock_timeout = '50ms'")))


@contextmanager
def locked(endings: Endings, job_id: UUID) -> Iterator[None]:
    """Another service has a row in its hands."""
    with endings.house.engine.begin() as connection:
        connection.execute(text("SELECT FROM flyer_tagging_jobs WHERE id = :id FOR UPDATE"), {"id": job_id})
        yield


@contextmanager
def spoiled(endings: Endings, chosen: Callable[[str], bool], times: int = 1000) -> Iterator[list[str]]:
    """Let the first so many statements that are chosen fail in the database, and collect them."""
    seen: list[str] = []

    def spoil(_c: object, _cursor: object, sql: str, parameters: Any, *_rest: object) -> tuple[str, Any]:
        if len(seen) < times and chosen(sql):
            seen.append(sql)
            return "SELECT 1 / 0", {}
        return sql, parameters

    event.listen(endings.house.engine, "before_cursor_execute", spoil, retval=True)
    try:
        yield seen
    finally:
        event.remove(endings.house.engine, "before_cursor_execute", spoil)


def test_locks_are_waited_for_briefly(endings: Endings) -> None:
    """R204: five seconds, in whatever waits for a row or a turn."""

    def timeout(connection: Connection) -> Any:
        records._be_brief(connection)
        return connection.scalar(text("SHOW lock_timeout"))

    with endings.house.engine.begin() as connection:
        assert timeout(connection) == "5s"


def test_a_locked_row_keeps_no_other_waiting(endings: Endings, brief: None) -> None:
    """R172, R174: it is a problem of this tick and is recorded by the next; the rows behind it are recorded at once."""
    held, behind = endings.flyer(ago=400), endings.flyer(ago=300)
    with locked(endings, held):
        done = endings.scan()
    (problem,) = done.problems
    assert problem.startswith(f"flyer_tagging_jobs: {held} stays as it is: ")
    assert done.recorded == {"pipeline_error": 1} and endings.notice(behind) == ("sent", 1)
    assert endings.scan() == Scan(recorded=done.recorded, notices=done.notices)
    assert endings.notice(held) == ("sent", 1)


def test_a_locked_notice_keeps_no_other_waiting(endings: Endings, brief: None) -> None:
    """R182, R195: a notice whose row is locked stays as it is, the others are sent again."""
    endings.sink.order(451, times=2)
    held, behind = endings.flyer(ago=400), endings.flyer(ago=300)
    endings.scan()
    with locked(endings, held):
        done = endings.scan()
    assert len(done.problems) == 1 and done.notices == {"sent": 1}
    assert (endings.notice(held), endings.notice(behind)) == (("pending", 1), ("sent", 2))
    assert endings.scan().notices == {"sent": 1}


def test_a_row_that_is_locked_once_its_mail_is_sent(endings: Endings, brief: None) -> None:
    """R174, R182: what came of the mail cannot be written down, which is a problem of this tick; a later one sends it again."""
    held, behind = endings.flyer(ago=400), endings.flyer(ago=300)
    send = endings.mailer.send
    with pytest.MonkeyPatch.context() as patch, ExitStack() as hold:

        def send_and_lock(mail: Mail) -> Delivery:
            delivery = send(mail)
            if str(held) in mail.key:
                hold.enter_context(locked(endings, held))
            return delivery

        patch.setattr(endings.mailer, "send", send_and_lock)
        done = endings.scan()
    assert len(done.problems) == 1 and done.notices == {"sent": 1}
    assert (endings.notice(held), endings.notice(behind)) == (("sending", 1), ("sent", 1))
    endings.pass_time(901)
    assert endings.scan().notices == {"sent": 1}
    assert endings.notice(held) == ("sent", 2)


def test_a_digest_is_given_back_once_its_rows_are_free(endings: Endings, brief: None) -> None:
    """R193: whoever holds a row longer than is waited for, keeps the release for as long."""
    held = endings.flyer()
    endings.scan(replace(endings.policy, max_per_hour=0))
    slept: list[float] = []
    with ExitStack() as hold:

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            hold.close()

        class Refusing(Mailer):
            def send(self, mail: Mail) -> Delivery:
                hold.enter_context(locked(endings, held))
                return Delivery(Sent.REFUSED, None, "refused")

        refusing = Refusing(None, None, "scribe@example.org")
        assert send_digests(endings.house.engine, {FLYERS: endings.policy}, refusing, sleep).covered == {}
    assert slept == [1]
    assert endings.digest() == Digests({FLYERS.name: 1})


def test_a_digest_does_not_wait_for_its_turn(endings: Endings, brief: None) -> None:
    """R192, R193: while somebody counts or claims notices for long, it is a problem of this call, and the next one sends."""
    endings.flyers(3)
    endings.scan(replace(endings.policy, max_per_hour=0))
    with endings.house.engine.begin() as connection:
        records.take_turn(connection, FLYERS)
        done = endings.digest()
    assert done == Digests(problems=["flyer_tagging_jobs: somebody else is at it, and the digest waits for the next call"])
    assert endings.digest() == Digests({"flyer_tagging_jobs": 3})


def test_a_digest_leaves_locked_rows_to_the_next(endings: Endings) -> None:
    """R187, R189: it waits for nobody; what was locked is told of an hour later, once."""
    endings.flyers(3)
    held = endings.flyer()
    endings.scan(replace(endings.policy, max_per_hour=0))
    with locked(endings, held):
        assert endings.digest() == Digests({FLYERS.name: 3})
    assert endings.outcome(held).failure_notified_at is None
    endings.pass_time(HOUR)
    assert endings.digest() == Digests({FLYERS.name: 1})
    assert endings.summaries() == [3, 1]


@pytest.mark.parametrize("began", ["infinity", "-infinity", "20000-01-01", "0044-03-15 BC"])
def test_a_job_may_have_begun_at_any_time(endings: Endings, began: str) -> None:
    """R169, R203: what no Python holds is recorded and told of like all else, by a notice and its retry too."""
    endings.sink.order(451)
    job_id = endings.flyer()
    endings.unguarded("UPDATE flyer_tagging_jobs SET created_at = CAST(:began AS timestamptz)", began=began)
    assert endings.scan().notices == {"pending": 1}
    assert endings.scan() == Scan(notices=Counter(sent=1))
    assert endings.told() == [(str(job_id), 2)]


@pytest.mark.parametrize("ended", ["-infinity", "infinity", "20000-01-01", "0044-03-15 BC"])
def test_a_job_that_ended_at_no_time_stops_nobody(endings: Endings, ended: str) -> None:
    """R173, R203: it is left alone, and the others are recorded."""
    left = endings.flyer()
    endings.unguarded("UPDATE flyer_tagging_jobs SET updated_at = CAST(:ended AS timestamptz)", ended=ended)
    behind = endings.flyer()
    assert endings.scan() == Scan(recorded=Counter(pipeline_error=1), notices=Counter(sent=1))
    assert endings.notice(behind) == ("sent", 1)
    unrecorded = "SELECT id FROM flyer_tagging_jobs WHERE outcome_recorded_at IS NULL"
    assert [row.id for row in endings.house.rows(unrecorded)] == [left]
    endings.house.execute("DELETE FROM flyer_tagging_jobs WHERE id = :id", id=left)


def test_a_file_may_have_been_made_at_any_time(endings: Endings) -> None:
    """R203: of a file's row no time is read."""
    endings.house.execute(
        "INSERT INTO files (id, size, created_at, updated_at) VALUES (:id, 7, 'infinity', '-infinity')", id=UUID(int=1)
    )
    job_id = endings.flyer(file_id=UUID(int=1))
    assert endings.scan().problems == {}
    assert endings.outcome(job_id).outcome_facts["bytes"] == 7


@pytest.mark.parametrize(("refused", "recorded"), [(25, 25), (249, 1), (250, 0)])
def test_refused_rows_keep_no_other_waiting(endings: Endings, refused: int, recorded: int) -> None:
    """R174: rows that the database refuses do not count among the 25 of a tick; no more than 250 are looked at in one."""
    endings.house.execute("""CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'refused' USING ERRCODE = 'restrict_violation'; END $$""")
    endings.house.execute("""CREATE TRIGGER refuse BEFORE UPDATE ON flyer_tagging_jobs
        FOR EACH ROW WHEN (OLD.lane = 'refused') EXECUTE FUNCTION refuse()""")
    endings.flyers(refused, ago=400)
    endings.unguarded("UPDATE flyer_tagging_jobs SET lane = 'refused'")
    endings.flyers(26, "success", ago=300)
    done = endings.scan(families=(FLYERS,))
    assert sum(done.recorded.values()) == recorded
    assert len(done.problems) == refused
    endings.house.execute("DROP TRIGGER refuse ON flyer_tagging_jobs")


def waiting(endings: Endings, count: int = 3) -> None:
    """Failures that wait for the digest."""
    endings.flyers(count)
    endings.scan(replace(endings.policy, max_per_hour=0))


def _releases(sql: str) -> bool:
    return sql.startswith("UPDATE flyer_tagging_jobs SET failure_notified_at") and "RETURNING" not in sql


def test_a_release_that_fails_at_first(endings: Endings) -> None:
    """R193: it is tried again, with longer and longer waits, and then the rows wait for the next digest."""
    waiting(endings)
    endings.sink.order(550)
    waits: list[float] = []
    with spoiled(endings, _releases, times=3) as seen:
        send_digests(endings.house.engine, {FLYERS: endings.policy}, endings.mailer, waits.append)
    assert len(seen) == 3 and waits == [1, 2, 4]
    assert endings.digest() == Digests({FLYERS.name: 3})


def test_a_release_that_never_succeeds(endings: Endings) -> None:
    """R193: the error names the stamp by which the rows are found that nobody was told of."""
    waiting(endings)
    endings.sink.order(550)
    waits: list[float] = []
    with spoiled(endings, _releases), pytest.raises(DatabaseError) as caught:
        send_digests(endings.house.engine, {FLYERS: endings.policy}, endings.mailer, waits.append)
    stamp = endings.house.value("SELECT DISTINCT failure_notified_at FROM flyer_tagging_jobs")
    assert stamp is not None and str(stamp) in caught.value.message
    assert waits == [1, 2, 4, 8, 15]


AHEAD = "clock_timestamp() + interval '2 days'"


def test_a_digest_of_a_clock_that_was_ahead(endings: Endings) -> None:
    """R187: a digest that was stamped with a time to come does not hold up the next one."""
    waiting(endings, 2)
    endings.digest()
    endings.unguarded(f"UPDATE flyer_tagging_jobs SET failure_notified_at = {AHEAD}")
    waiting(endings, 3)
    assert endings.digest() == Digests({FLYERS.name: 3})
    # the invariants know of no such clock
    endings.unguarded(
        "UPDATE flyer_tagging_jobs SET failure_notified_at = '2026-01-01' WHERE failure_notified_at > clock_timestamp()"
    )


CLAIM_AHEAD = f"""UPDATE flyer_tagging_jobs SET outcome_facts = outcome_facts || jsonb_build_object('notice_claimed_at',
    to_char(({AHEAD}) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'))"""


def test_claims_of_a_clock_that_was_ahead(endings: Endings) -> None:
    """R185: claims of a time to come leave the hour its twelve notices."""
    endings.flyers(12)
    assert endings.scan().notices == {"sent": 12}
    endings.unguarded(CLAIM_AHEAD)
    endings.flyers(2)
    assert endings.scan().notices == {"sent": 2}


def test_a_claim_from_the_future_is_nobodys(endings: Endings) -> None:
    """R183: a notice that is being sent since a time to come is taken for lost, and sent again."""
    job_id = endings.flyer()
    with spoiled(endings, lambda sql: sql.startswith("UPDATE") and "failure_notified_at=" in sql):
        endings.scan()
    assert endings.notice(job_id) == ("sending", 1)
    endings.unguarded(CLAIM_AHEAD)
    assert endings.scan().notices == {"sent": 1}
    assert endings.notice(job_id) == ("sent", 2)


@FAMILIES
def test_an_activation_from_the_future_is_put_right(endings: Endings, family: Family) -> None:
    """R199: whoever waits for a time to come would be told of nothing; it is made the present once, and then stays."""
    endings.house.execute(f"UPDATE outcome_activations SET activated_at = {AHEAD}")
    past = endings.failed(family)
    active = f"SELECT activated_at FROM outcome_activations WHERE family = '{family.name}'"
    endings.scan()
    right = endings.house.value(active)
    assert right <= endings.house.value("SELECT clock_timestamp()")
    assert endings.notice(past, family) == ("backfill", 0)
    endings.scan()
    assert endings.house.value(active) == right


@FAMILIES
def test_trouble_with_one_family_leaves_the_other_its_turn(endings: Endings, family: Family) -> None:
    """R174, R187, R219: whatever the database has against one family's rows is raised when the other has had its turn."""
    other = JOBS if family is FLYERS else FLYERS
    mine, others = endings.failed(family), endings.failed(other)
    none = replace(endings.policy, max_per_hour=0)
    with spoiled(endings, lambda sql: "is_history" in sql and family.name in sql), pytest.raises(DatabaseError):
        endings.scan(none)
    assert endings.outcome(mine, family).outcome_recorded_at is None
    assert endings.notice(others, other) == ("digest", 0)
    endings.scan(none)
    with spoiled(endings, lambda sql: sql.startswith(f"UPDATE {family.name}")), pytest.raises(DatabaseError):
        endings.digest()
    assert (endings.summaries(family), endings.summaries(other)) == ([], [1])


@FAMILIES
def test_a_digest_of_a_database_that_is_behind(endings: Endings, family: Family) -> None:
    """R219: a missing column is one problem, as it is to a scan."""
    endings.house.execute(f"ALTER TABLE {family.name} RENAME failure_notified_at TO gone")
    problem = f"{family.name}: outcomes cannot be recorded before the database is migrated: run scribe db upgrade"
    assert endings.digest() == Digests(problems=[problem])
    endings.house.execute(f"ALTER TABLE {family.name} RENAME gone TO failure_notified_at")


def test_notices_are_sent_again_in_the_order_of_their_claims(endings: Endings) -> None:
    """R184: what was claimed first is sent first, whatever the ids."""
    endings.sink.order(451, times=2)
    later = endings.flyer(id=UUID(int=1), ago=300)
    first = endings.flyer(id=UUID(int=2), ago=400)
    endings.scan()
    with endings.house.engine.begin() as connection:
        found = records.to_be_retried(connection, FLYERS, endings.policy)
    assert [row.id for row in found] == [first, later]


def test_a_key_that_no_index_entry_holds(endings: Endings) -> None:
    """R203, R213: other services may write keys of any length; earlier jobs on the same one are counted."""
    key = Random(7).randbytes(2800).hex()
    endings.flyer(input_key=key, ago=900)
    endings.flyer(input_key=key[:-1], ago=800)
    job_id = endings.flyer(input_key=key)
    endings.drain()
    assert endings.outcome(job_id).outcome_facts["prior_attempts"] == 1


def test_facts_name_the_version_of_what_was_asked(endings: Endings) -> None:
    """R196, A12: an outcome says by which predicates it was classed."""
    ids = {family: endings.failed(family) for family in (FLYERS, JOBS)}
    endings.pass_time(300)
    endings.scan()
    for family, job_id in ids.items():
        assert endings.outcome(job_id, family).outcome_facts["predicates_version"] == VERSION


def test_the_workspaces_name_is_not_told(endings: Endings) -> None:
    """R215: what is written in an error stays out of the facts if it is the name of the page's workspace."""
    job_id = endings.failed_job()
    endings.house.execute("UPDATE workspaces SET name = 'Estate of Jane Doe'")
    endings.unguarded("UPDATE transcription_jobs SET error = 'no quota left for Estate of Jane Doe'")
    endings.scan()
    assert endings.outcome(job_id, JOBS).outcome_facts["error"] == "no quota left for [name]"
