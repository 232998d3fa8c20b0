"""Notices of single failures: their states, how often one is sent, how many an hour, and what is sent again."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event

from scribe_pipeline.database import DatabaseError
from scribe_pipeline.outcomes import Family, Mail, Scan
from scribe_pipeline.outcomes.mail import Delivery
from tests.endings import FLYERS, JOBS, RECIPIENT, Endings
from tests.houses import StoppedError, stopped_after
from tests.mail_sink import LOST

HOUR = 3600
SETTLED = "UPDATE {} SET outcome_facts"
FAMILIES = pytest.mark.parametrize("family", [FLYERS, JOBS], ids=lambda family: family.name)


@FAMILIES
def test_one_failure_is_one_mail(endings: Endings, family: Family) -> None:
    """R168, R180: over many ticks one mail, to whom it is meant; the row says when, and that it was sent."""
    job_id = endings.failed(family)
    for _ in range(10):
        endings.scan()
        endings.digest()
        endings.pass_time(300)
    assert endings.told(family) == [(str(job_id), 1)]
    assert [mail.recipients for mail in endings.mails] == [[RECIPIENT]]
    row = endings.outcome(job_id, family)
    assert endings.notice(job_id, family) == ("sent", 1)
    assert row.failure_notified_at >= row.outcome_recorded_at


@FAMILIES
def test_it_is_claimed_as_it_is_recorded(endings: Endings, family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """R179, R184: while the mail is on its way the row is recorded and `sending`, and no transaction is open."""
    job_id, seen = endings.failed(family), []
    send = endings.mailer.send

    def look(mail: Mail) -> Delivery:
        row = endings.outcome(job_id, family)
        seen.append((row.outcome_class, row.outcome_facts["notice"], row.outcome_facts["notice_attempts"], row.failure_notified_at))
        open_ones = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in transaction%'"
        assert endings.house.value(open_ones) == 0
        return send(mail)

    monkeypatch.setattr(endings.mailer, "send", look)
    endings.scan()
    assert seen == [("pipeline_error", "sending", 1, None)]


@FAMILIES
def test_a_server_that_refuses(endings: Endings, family: Family) -> None:
    """R181, R184, R196: pending with one attempt, with two, then failed: one attempt a tick, and no fourth ever.

    The tick that gives it up says so, with the job's id.
    """
    endings.sink.order(550, times=None)
    job_id, states = endings.failed(family), []
    refused, given_up = (
        f"{family.name}: {problem}"
        for problem in ("the primary mail server refused the message (550)", f"the notice of {job_id} is given up after 3 attempts")
    )
    for problems in ([refused], [refused], [refused, given_up]):
        done = endings.scan()
        assert list(done.problems) == problems
        assert done.notices == {endings.notice(job_id, family)[0]: 1}
        states.append(endings.notice(job_id, family))
        endings.pass_time(300)
    assert states == [("pending", 1), ("pending", 2), ("failed", 3)]
    endings.sink.clear()
    for _ in range(3):
        endings.pass_time(1000)
        assert endings.scan() == Scan()
    assert endings.mails == []
    assert endings.outcome(job_id, family).failure_notified_at is None


def test_a_server_that_recovers(endings: Endings) -> None:
    """R181, R182: what was refused twice and taken then is sent, with three claims and one mail."""
    endings.sink.order(451, times=2)
    job_id = endings.flyer()
    for _ in range(4):
        endings.scan()
    assert endings.notice(job_id) == ("sent", 3)
    assert endings.told() == [(str(job_id), 3)]


def test_an_answer_that_never_comes(endings: Endings) -> None:
    """R184, I13: of a mail that may have been taken another is sent, but never more than three in all."""
    endings.sink.order(LOST, times=None)
    job_id = endings.flyer()
    for _ in range(6):
        endings.scan()
        endings.pass_time(1000)
    assert endings.notice(job_id) == ("failed", 3)
    assert endings.told() == [(str(job_id), 1), (str(job_id), 2), (str(job_id), 3)]


def test_no_attempt_is_spent_on_a_server_that_is_away(endings: Endings) -> None:
    """R168, R184: the first claim may meet a server that is away; after that a notice waits for it, for however many ticks."""
    job_id = endings.flyer()
    endings.sink.stop()
    problems = ["flyer_tagging_jobs: the primary mail server cannot be reached"]
    for _ in range(12):
        done = endings.scan()
        assert (list(done.problems), done.notices) == (problems, {"pending": 1})
        assert endings.notice(job_id) == ("pending", 1)
        endings.pass_time(300)
    endings.sink.start()
    endings.scan()
    assert endings.notice(job_id) == ("sent", 2)
    assert endings.told() == [(str(job_id), 2)]


@FAMILIES
def test_a_claim_is_stale_after_a_quarter_of_an_hour(endings: Endings, family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    """R182, R179, R204: a scan that ended between its claim and its mail is taken over after 15:00, and not at that."""
    job_id = endings.failed(family)
    _stopping(endings, monkeypatch, StoppedError)
    monkeypatch.undo()
    endings.stop_clock()
    stale = f"""UPDATE {family.name} SET outcome_facts = outcome_facts || jsonb_build_object('notice_claimed_at',
        to_char((still.clock_timestamp() - make_interval(secs => :age)) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24\\:MI\\:SS.US"Z"'))"""
    for age in (899, 900):
        endings.unguarded(stale, age=age)
        assert endings.scan() == Scan()
        assert endings.notice(job_id, family) == ("sending", 1)
    endings.unguarded(stale, age=901)
    assert endings.scan().notices == {"sent": 1}
    assert endings.told(family) == [(str(job_id), 2)]


def _stopping(endings: Endings, monkeypatch: pytest.MonkeyPatch, error: type[BaseException]) -> None:
    def stop(_mail: Mail) -> Delivery:
        raise error

    monkeypatch.setattr(endings.mailer, "send", stop)
    with pytest.raises(error):
        endings.scan()


@FAMILIES
@pytest.mark.parametrize("error", [StoppedError, KeyboardInterrupt])
def test_a_process_that_ends_before_each_mail(
    endings: Endings, family: Family, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R184, R196: a notice whose three claims all vanished is failed, and not sent again."""
    job_id = endings.failed(family)
    for number in (1, 2, 3):
        _stopping(endings, monkeypatch, error)
        assert endings.notice(job_id, family) == ("sending", number)
        assert endings.scan() == Scan(), "somebody may still be sending it"
        endings.pass_time(901)
    monkeypatch.undo()
    assert endings.scan().notices == {"failed": 1}
    assert endings.notice(job_id, family) == ("failed", 3)
    assert endings.mails == []


def test_what_became_of_it_is_never_written(endings: Endings) -> None:
    """R182, R184: mails that were sent, and nobody could write that down: three of them, 15 minutes apart, and no fourth."""
    job_id = endings.flyer()
    _spoiled(endings, lambda sql: sql.startswith(SETTLED.format(FLYERS.name)) and "failure_notified_at=" in sql)
    for number in (1, 2, 3):
        with suppress(DatabaseError):
            endings.scan()
        assert endings.notice(job_id) == ("sending", number)
        assert endings.scan() == Scan()
        endings.pass_time(901)
    assert endings.scan().notices == {"failed": 1}
    assert endings.told() == [(str(job_id), 1), (str(job_id), 2), (str(job_id), 3)]


def test_a_claim_or_its_end_is_undone(endings: Endings) -> None:
    """R182, R204: a process that ends amid the writing of a mail's end, then amid the next claim: the notice stays as it was."""
    job_id = endings.flyer()
    for _ in range(2):
        with stopped_after(endings.house.engine, SETTLED.format(FLYERS.name)):
            endings.scan()
        assert endings.notice(job_id) == ("sending", 1)
        endings.pass_time(901)
    endings.scan()
    assert endings.notice(job_id) == ("sent", 2)
    assert endings.told() == [(str(job_id), 1), (str(job_id), 2)]


def test_a_mail_whose_end_is_refused(endings: Endings) -> None:
    """R182: what the database refuses to write of one mail leaves its claim; the next rows and, later, the notice are seen to."""
    first, second = endings.flyer(ago=400), endings.flyer(ago=300)
    remove = _spoiled(endings, lambda sql: sql.startswith(SETTLED.format(FLYERS.name)))
    done = endings.scan()
    remove()
    assert done.recorded == {"pipeline_error": 2} and done.notices == {}
    assert {problem.partition(" stays")[0] for problem in done.problems} == {
        f"flyer_tagging_jobs: {job_id}" for job_id in (first, second)
    }
    assert endings.notice(first) == endings.notice(second) == ("sending", 1)
    endings.pass_time(901)
    endings.scan()
    assert endings.notice(first) == endings.notice(second) == ("sent", 2)


def _spoiled(endings: Endings, chosen: Callable[[str], bool]) -> Callable[[], None]:
    """Let the statements that are chosen fail in the database, until what is returned is called."""

    def spoil(_c: object, _cursor: object, sql: str, parameters: Any, *_rest: object) -> tuple[str, Any]:
        return ("SELECT 1 / 0", {}) if chosen(sql) else (sql, parameters)

    event.listen(endings.house.engine, "before_cursor_execute", spoil, retval=True)
    return lambda: event.remove(endings.house.engine, "before_cursor_execute", spoil)


@FAMILIES
def test_the_number_of_notices_cannot_be_read(endings: Endings, family: Family) -> None:
    """R194, I13: then all new failures wait for the digest, which is sent, and no mail of their own is; the tick says so once."""
    ids = [endings.failed(family) for _ in range(3)]
    remove = _spoiled(endings, lambda sql: sql.startswith("SELECT count(*)") and "notice_claimed_at" in sql)
    done = endings.scan()
    assert (done.recorded, done.notices) == ({"pipeline_error": 3}, {"digest": 3})
    unread = "the number of notices sent within the hour cannot be read: failures wait for the digest"
    assert list(done.problems) == [f"{family.name}: {unread}"]
    remove()
    assert endings.told(family) == []
    assert endings.digest().covered == {family.name: 3}
    assert endings.summaries(family) == [3]
    assert {endings.notice(job_id, family) for job_id in ids} == {("digest", 0)}


def test_a_retry_whose_budget_cannot_be_read(endings: Endings) -> None:
    """R194, R195: it goes to the digest as well."""
    endings.sink.order(451)
    job_id = endings.flyer()
    endings.scan()
    remove = _spoiled(endings, lambda sql: sql.startswith("SELECT count(*)") and "notice_claimed_at" in sql)
    assert endings.scan().notices == {"digest": 1}
    remove()
    assert endings.notice(job_id) == ("digest", 1)
    assert endings.digest().covered == {FLYERS.name: 1}


@FAMILIES
@pytest.mark.parametrize("cap", [0, 2, 12])
def test_the_cap(endings: Endings, family: Family, cap: int) -> None:
    """R185, R186, R208: so many are told of alone, those that ended first; the others wait for the digest."""
    endings.policy = replace(endings.policy, max_per_hour=cap)
    ids = [endings.failed(family, ago=1) for _ in range(20 if family is FLYERS else cap + 2)]
    endings.pass_time(300)
    endings.drain()
    wanted = {"sent": cap, "digest": len(ids) - cap}
    assert endings.notices(family) == {notice: number for notice, number in wanted.items() if number}
    assert endings.told(family) == [(str(job_id), 1) for job_id in ids[:cap]]


def test_each_family_has_a_cap_of_its_own(endings: Endings) -> None:
    """R185: what one family has spent is not missing in the other."""
    endings.flyers(12)
    job_id = endings.failed_job()
    endings.scan()
    assert endings.notices() == {"sent": 12}
    assert endings.notice(job_id, JOBS) == ("sent", 1)


def test_the_hour_slides(endings: Endings) -> None:
    """R185, I13: what was claimed counts for an hour to the second, and nothing begins anew when the clock strikes."""
    endings.stop_clock()
    endings.flyers(6)
    assert endings.scan().notices == {"sent": 6}
    endings.pass_time(1800)
    endings.flyers(8)
    assert endings.scan().notices == {"sent": 6, "digest": 2}
    endings.pass_time(1799)
    endings.flyers(1)
    assert endings.scan().notices == {"digest": 1}, "the first six were claimed 59:59 ago"
    endings.pass_time(1)
    endings.flyers(7)
    assert endings.scan().notices == {"sent": 6, "digest": 1}, "the second six still count"
    endings.pass_time(1800)
    endings.flyers(7)
    assert endings.scan().notices == {"sent": 6, "digest": 1}
    assert len(endings.told()) == 24


def test_claims_count_whatever_became_of_them(endings: Endings) -> None:
    """R185, R194, I13: twelve that are refused have spent the hour; their own retries go on, and a thirteenth waits."""
    endings.sink.order(451, times=12)
    endings.flyers(12)
    assert endings.scan().notices == {"pending": 12}
    late = endings.flyer()
    assert endings.scan().notices == {"sent": 12, "digest": 1}
    assert endings.notice(late) == ("digest", 0)
    assert len(endings.told()) == 12


@FAMILIES
def test_a_retry_without_room(endings: Endings, family: Family) -> None:
    """R195, R196: a notice that waits while the hour is spent becomes one of the digest, and is told of there."""
    endings.sink.order(451)
    job_id = endings.failed(family)
    assert endings.scan().notices == {"pending": 1}
    endings.policy = replace(endings.policy, max_per_hour=0)
    assert endings.scan().notices == {"digest": 1}
    assert endings.notice(job_id, family) == ("digest", 1)
    assert endings.digest().covered == {family.name: 1}
    endings.policy = replace(endings.policy, max_per_hour=12)
    endings.pass_time(HOUR)
    assert endings.scan() == Scan()
    assert (endings.told(family), endings.summaries(family)) == ([], [1])


@pytest.mark.parametrize(("cap", "becomes"), [(3, ("digest", 1)), (4, ("sent", 2))])
def test_the_room_that_others_leave(endings: Endings, cap: int, becomes: tuple[str, int]) -> None:
    """R185, R195: a retry goes to the digest if the notices of others have spent the hour; its own earlier claim does not count."""
    endings.sink.order(451)
    job_id = endings.flyer(ago=400)
    endings.flyers(3)
    assert endings.scan().notices == {"pending": 1, "sent": 3}
    assert endings.scan(replace(endings.policy, max_per_hour=cap)).notices == {becomes[0]: 1}
    assert endings.notice(job_id) == becomes
