"""The digest: what the hour had no room for is told of in one mail, an hour after the last at the earliest, and once."""

import re
import shlex
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from sqlalchemy import event

from scribe_pipeline.database import DatabaseError
from scribe_pipeline.outcomes import Digests, Family, Mail, send_digests
from scribe_pipeline.outcomes.mail import Delivery
from tests.endings import FLYERS, JOBS, RECIPIENT, Endings
from tests.houses import StoppedError, stopped_after
from tests.mail_sink import CUT, LOST

HOUR = 3600
STAMPS = "SELECT failure_notified_at, count(*) FROM {} WHERE outcome_facts ->> 'notice' = 'digest' GROUP BY 1 ORDER BY 1"
CLAIM = "UPDATE flyer_tagging_jobs SET failure_notified_at"
FAMILIES = pytest.mark.parametrize("family", [FLYERS, JOBS], ids=lambda family: family.name)


def waiting(endings: Endings, count: int = 5, family: Family = FLYERS) -> None:
    """So many failures for which the hour has no room."""
    if family is FLYERS:
        endings.flyers(count)
    else:
        for _ in range(count):
            endings.failed_job(ago=1)
        endings.pass_time(300)
    mails = len(endings.mails)
    endings.drain(replace(endings.policy, max_per_hour=0))
    assert endings.notices(family)["digest"] >= count and len(endings.mails) == mails


def stamps(endings: Endings, family: Family = FLYERS) -> list[tuple[Any, int]]:
    """When rows of a digest were told of (None for not yet), and how many at each time."""
    return [tuple(row) for row in endings.house.rows(STAMPS.format(family.name))]


def looking(endings: Endings, monkeypatch: pytest.MonkeyPatch, look: Callable[[], object]) -> None:
    """Look at something whenever a mail is about to be sent."""
    send = endings.mailer.send

    def send_after(mail: Mail) -> Delivery:
        look()
        return send(mail)

    monkeypatch.setattr(endings.mailer, "send", send_after)


@FAMILIES
def test_one_mail_for_all_that_wait(endings: Endings, family: Family) -> None:
    """R187, R191: five rows, one mail that says five, to whom it is meant; what is told is not told again."""
    waiting(endings, family=family)
    assert endings.digest() == Digests({family.name: 5})
    assert endings.summaries(family) == [5]
    assert endings.mails[0].recipients == [RECIPIENT]
    endings.pass_time(2 * HOUR)
    assert endings.digest() == Digests()
    assert len(endings.mails) == 1


@FAMILIES
@pytest.mark.parametrize("zone", ["UTC", "Asia/Kathmandu", "America/St_Johns"])
def test_the_rows_of_a_digest_are_found_as_it_says(endings: Endings, family: Family, zone: str) -> None:
    """R188, R191: the command of the mail shows the rows that it is about and no others, whatever the sessions' time zone."""
    endings.house.execute(
        f"DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = %L', current_database(), '{zone}'); END $$"
    )
    endings.house.engine.dispose()
    waiting(endings, 2, family)
    endings.digest()
    endings.pass_time(HOUR + 1)
    earlier = {row.id for row in endings.house.rows(f"SELECT id FROM {family.name}")}
    waiting(endings, 3, family)
    endings.digest()
    (command,) = re.findall("^  command: (.+)$", endings.mails[-1].text, re.MULTILINE)
    *program, statement = shlex.split(command)
    assert program == ["scribe", "db", "psql", "-x", "-c"]
    found = endings.house.rows(statement.replace(":", r"\:"))
    assert len(found) == 3 and earlier.isdisjoint({row.id for row in found})


def test_an_hour_between(endings: Endings) -> None:
    """R187, I13: 59:59 after a digest there is none, 60:00 after it there is one of what came since."""
    endings.stop_clock()
    waiting(endings, 3)
    assert endings.digest().covered == {FLYERS.name: 3}
    endings.flyers(2)
    endings.scan(replace(endings.policy, max_per_hour=0))
    endings.pass_time(HOUR - 1)
    assert endings.digest() == Digests()
    endings.pass_time(1)
    assert endings.digest().covered == {FLYERS.name: 2}
    assert endings.summaries() == [3, 2]


def test_each_family_has_its_own_digest(endings: Endings) -> None:
    """R187: one family's digest does not hold up the other's."""
    waiting(endings, 2)
    endings.digest()
    endings.failed_job()
    endings.scan(replace(endings.policy, max_per_hour=0))
    assert endings.digest().covered == {JOBS.name: 1}
    assert (endings.summaries(FLYERS), endings.summaries(JOBS)) == ([2], [1])


def test_notices_of_their_own_do_not_close_the_gate(endings: Endings) -> None:
    """R192: the gate is closed by digests, not by notices, whose time stands in the same column."""
    endings.flyers(15)
    assert endings.scan().notices == {"sent": 12, "digest": 3}
    assert endings.digest().covered == {FLYERS.name: 3}


@FAMILIES
def test_rows_are_claimed_before_the_mail(endings: Endings, family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """R189, R192: while the mail is on its way its rows bear one stamp, and for others the gate is closed already."""
    waiting(endings, family=family)
    seen: list[Any] = []

    def look() -> None:
        seen.append((stamps(endings, family), send_digests(endings.house.engine, {family: endings.policy}, endings.mailer)))

    looking(endings, monkeypatch, look)
    endings.digest()
    ((((stamp, number),), others),) = seen
    assert (number, others) == (5, Digests()) and stamp is not None
    assert stamps(endings, family) == [(stamp, 5)]


def test_claims_go_in_chunks(endings: Endings) -> None:
    """R190: 130 rows are claimed in statements of 50, 50 and 30 ids."""
    waiting(endings, 130)
    claimed: list[int] = []

    def count(_connection: object, cursor: Any, sql: str, *_rest: object) -> None:
        if sql.startswith(CLAIM):
            claimed.append(cursor.rowcount)

    event.listen(endings.house.engine, "after_cursor_execute", count)
    assert endings.digest().covered == {FLYERS.name: 130}
    assert claimed == [50, 50, 30]
    ((stamp, number),) = stamps(endings)
    assert stamp is not None and number == 130
    assert endings.summaries() == [130]


@FAMILIES
@pytest.mark.parametrize("fault", [451, 550, CUT, None], ids=lambda fault: str(fault or "away"))
def test_a_digest_that_is_not_sent(endings: Endings, family: Family, fault: int | str | None) -> None:
    """R193: its claim is released, the gate is open again, and the next tick sends it; the tick says what was in the way."""
    waiting(endings, family=family)
    if fault is None:
        endings.sink.stop()
    else:
        endings.sink.order(fault)
    done = endings.digest()
    ambiguous = fault == CUT
    assert len(done.problems) == 1 and done.problems[0].startswith(f"{family.name}: the primary mail server ")
    assert done.covered == ({family.name: 5} if ambiguous else {})
    if fault is None:
        endings.sink.start()
    assert [stamp is None for stamp, _ in stamps(endings, family)] == [not ambiguous]
    assert endings.digest().covered == ({} if ambiguous else {family.name: 5})
    assert endings.summaries(family) == ([] if ambiguous else [5])


def test_a_digest_that_may_have_come(endings: Endings) -> None:
    """R191, B9: a mail whose answer never came counts as one that did: none of its rows is told of twice."""
    waiting(endings)
    endings.sink.order(LOST)
    done = endings.digest()
    assert done.covered == {FLYERS.name: 5} and len(done.problems) == 1
    endings.pass_time(HOUR)
    assert endings.digest() == Digests()
    assert endings.summaries() == [5]


def test_only_its_own_claim_is_released(endings: Endings, monkeypatch: pytest.MonkeyPatch) -> None:
    """R193: rows of an earlier digest keep their stamp, and rows that came meanwhile wait like those released."""
    waiting(endings, 2)
    endings.digest()
    endings.pass_time(HOUR)
    ((earlier, _),) = stamps(endings)
    endings.flyers(3)
    spent = replace(endings.policy, max_per_hour=0)
    endings.scan(spent)

    def another() -> None:
        endings.flyers(1)
        endings.scan(spent)

    looking(endings, monkeypatch, another)
    endings.sink.order(550)
    assert endings.digest().covered == {}
    assert stamps(endings) == [(earlier, 2), (None, 4)]
    monkeypatch.undo()
    assert endings.digest().covered == {FLYERS.name: 4}


def test_a_release_that_is_late(endings: Endings, monkeypatch: pytest.MonkeyPatch) -> None:
    """R193: who fails after its rows were released and claimed by another leaves the other's claim as it is."""
    waiting(endings)
    sent: list[Digests] = []

    def overtake() -> None:
        monkeypatch.undo()
        endings.house.execute("UPDATE flyer_tagging_jobs SET failure_notified_at = NULL")
        sent.append(endings.digest())
        endings.sink.order(550)

    looking(endings, monkeypatch, overtake)
    assert len(endings.digest().problems) == 1
    assert sent == [Digests({FLYERS.name: 5})]
    assert [stamp is None for stamp, _ in stamps(endings)] == [False]
    assert endings.summaries() == [5]


def test_a_claim_that_is_not_finished(endings: Endings) -> None:
    """R189, R204: a process that ends amid its chunks has claimed nothing."""
    waiting(endings, 60)
    with stopped_after(endings.house.engine, CLAIM):
        endings.digest()
    assert stamps(endings) == [(None, 60)]
    assert endings.digest().covered == {FLYERS.name: 60}


def test_a_claim_whose_answer_is_lost(endings: Endings, monkeypatch: pytest.MonkeyPatch) -> None:
    """R189, R193: nobody knows whether it was made, but that nobody was told: the next call tells of its rows."""
    waiting(endings)
    dialect = endings.house.engine.dialect
    commit = dialect.do_commit

    def lose(connection: Any) -> None:
        commit(connection)
        monkeypatch.undo()
        raise psycopg.OperationalError("the answer is lost")

    monkeypatch.setattr(dialect, "do_commit", lose)
    with pytest.raises(DatabaseError):
        endings.digest()
    assert stamps(endings) == [(None, 5)]
    assert endings.digest() == Digests({FLYERS.name: 5})
    assert endings.summaries() == [5]


def test_a_process_that_ends_after_its_claim(endings: Endings, monkeypatch: pytest.MonkeyPatch) -> None:
    """R191, R204: of what was claimed nobody knows whether it was told: it is not told again, and the hour is spent."""
    waiting(endings)

    def stop() -> None:
        raise StoppedError

    looking(endings, monkeypatch, stop)
    with pytest.raises(StoppedError):
        endings.digest()
    monkeypatch.undo()
    endings.flyers(1)
    endings.scan(replace(endings.policy, max_per_hour=0))
    assert endings.digest() == Digests()
    endings.pass_time(HOUR)
    assert endings.digest().covered == {FLYERS.name: 1}


def test_a_release_that_the_database_refuses(endings: Endings) -> None:
    """R193, I13: rows whose release failed stay claimed: told of by nobody rather than twice."""
    waiting(endings)
    endings.sink.order(550)

    def spoil(_c: object, _cursor: object, sql: str, parameters: Any, *_rest: object) -> tuple[str, Any]:
        return ("SELECT 1 / 0", {}) if sql.startswith(CLAIM) and "RETURNING" not in sql else (sql, parameters)

    event.listen(endings.house.engine, "before_cursor_execute", spoil, retval=True)
    with pytest.raises(DatabaseError):
        endings.digest()
    assert [stamp is None for stamp, _ in stamps(endings)] == [False]


@pytest.mark.parametrize("changes", [{"enabled": False}, {"recipient": None}], ids=["off", "nobody"])
def test_no_digest_for_nobody(endings: Endings, changes: dict[str, Any]) -> None:
    """R187, R205: with notices off or nobody named rows are not claimed; they wait for better days."""
    waiting(endings)
    assert endings.digest(replace(endings.policy, **changes)) == Digests()
    assert stamps(endings) == [(None, 5)]
    assert endings.digest().covered == {FLYERS.name: 5}
