"""Scans that run at the same time in spite of all, and rows that change under a scan: nothing is recorded or told of twice."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event

from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import delete_item
from scribe_pipeline.outcomes import Digests, Family, Mail, Scan, records, scan, scan_outcomes, send_digests
from scribe_pipeline.outcomes.mail import Delivery
from tests.endings import FLYERS, JOBS, Endings
from tests.houses import StoppedError
from tests.proofs import wait_until

HOUR = 3600
FAMILIES = pytest.mark.parametrize("family", [FLYERS, JOBS], ids=lambda family: family.name)
WAITS = """SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"""


@pytest.fixture
def leaders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every scan take itself for the leader."""

    @contextmanager
    def leading(_engine: object) -> Iterator[bool]:
        yield True

    monkeypatch.setattr(scan, "_leading", leading)


def meeting(monkeypatch: pytest.MonkeyPatch, name: str, parties: int = 2) -> None:
    """Let scans wait for each other after what they have read by a function of that name."""
    meet, read = threading.Barrier(parties, timeout=60), getattr(scan, name)

    def read_and_wait(*arguments: Any, **options: Any) -> Any:
        rows = read(*arguments, **options)
        meet.wait()
        return rows

    monkeypatch.setattr(scan, name, read_and_wait)


def together(*works: Callable[[], Any]) -> list[Any]:
    """Do several things at the same time, and return what came of each; the threads are called by their numbers."""
    found: list[Any] = [None] * len(works)

    def do(number: int) -> None:
        found[number] = works[number]()

    threads = [threading.Thread(target=do, args=(number,), name=str(number)) for number in range(len(works))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert None not in found, "one of them has failed"
    return found


def scans(endings: Endings, number: int = 2, family: Family = FLYERS) -> list[Scan]:
    """Several ticks at the same time."""
    one = {family: endings.policy}
    return together(*[lambda: scan_outcomes(endings.house.engine, one, endings.mailer)] * number)


def summed(done: list[Scan]) -> tuple[Counter[str], Counter[str]]:
    """What several ticks have recorded and told in all; there is nothing that an operator is to see."""
    assert all(each.problems == {} for each in done)
    return sum((each.recorded for each in done), Counter()), sum((each.notices for each in done), Counter())


@FAMILIES
@pytest.mark.parametrize("number", [2, 4])
def test_rows_are_recorded_by_one(
    endings: Endings, monkeypatch: pytest.MonkeyPatch, leaders: None, family: Family, number: int
) -> None:
    """R177, R178, R171, I14: scans that have read the same rows record each once; who is late does nothing and says nothing."""
    rows = 25 if family is FLYERS else 5
    for _ in range(rows):
        endings.failed(family, ago=1)
    endings.pass_time(300)
    meeting(monkeypatch, "unrecorded", number)
    recorded, notices = summed(scans(endings, number, family))
    assert recorded == {"pipeline_error": rows}
    alone = min(rows, 12)
    assert notices == Counter(sent=alone, digest=rows - alone)
    assert Counter(endings.told(family)).most_common(1)[0][1] == 1
    assert len(endings.mails) == alone


@FAMILIES
@pytest.mark.parametrize("was", ["pending", "sending"])
def test_a_retry_is_sent_by_one(endings: Endings, monkeypatch: pytest.MonkeyPatch, leaders: None, family: Family, was: str) -> None:
    """R183, I13: two scans that have read the same notice, refused before or lost: one of them claims and sends it."""
    ids = [endings.failed(family) for _ in range(3)]
    if was == "pending":
        endings.sink.order(451, times=3)
        endings.scan()
    else:
        with monkeypatch.context() as context:
            context.setattr(endings.mailer, "send", _stopped)
            for _ in ids:
                with pytest.raises(StoppedError):
                    endings.scan()
        endings.pass_time(901)
    assert {endings.notice(job_id, family) for job_id in ids} == {(was, 1)}
    meeting(monkeypatch, "to_be_retried")
    _, notices = summed(scans(endings, 2, family))
    assert notices == {"sent": 3}
    assert sorted(endings.told(family)) == sorted((str(job_id), 2) for job_id in ids)


def _stopped(_mail: Mail) -> Delivery:
    raise StoppedError


@pytest.mark.parametrize("end", ["digest", "failed", "unconfigured"])
def test_a_notice_is_given_up_by_one(endings: Endings, monkeypatch: pytest.MonkeyPatch, leaders: None, end: str) -> None:
    """R183, R195: the same if it is not to be sent again: one of them says what became of it."""
    endings.sink.order(451)
    job_id = endings.flyer()
    endings.scan()
    changes = {"digest": {"max_per_hour": 0}, "failed": {}, "unconfigured": {"recipient": None}}[end]
    endings.policy = replace(endings.policy, **changes)  # type: ignore[arg-type]
    if end == "failed":
        endings.pass_time(24 * HOUR)
    meeting(monkeypatch, "to_be_retried")
    assert summed(scans(endings))[1] == {end: 1}
    assert endings.notice(job_id) == (end, 1)
    assert endings.mails == []


def test_two_do_not_count_past_each_other(endings: Endings, monkeypatch: pytest.MonkeyPatch, leaders: None) -> None:
    """R185, R186, I13: with room for one, two scans at two rows: who counts while the other is about to claim waits for it."""
    endings.policy = replace(endings.policy, max_per_hour=1)
    endings.flyers(2)
    read, count, first = scan.unrecorded, records.notices_claimed, threading.Lock()
    meet = threading.Barrier(2, timeout=60)

    def read_in_turn(*arguments: Any, **options: Any) -> Any:
        rows = read(*arguments, **options)
        meet.wait()
        return rows[::-1] if threading.current_thread().name == "1" else rows

    def count_and_wait(*arguments: Any, **options: Any) -> Any:
        counted = count(*arguments, **options)
        if first.acquire(blocking=False):
            wait_until(lambda: endings.house.value(WAITS), "the other scan waits for its turn")
        return counted

    monkeypatch.setattr(scan, "unrecorded", read_in_turn)
    monkeypatch.setattr(records, "notices_claimed", count_and_wait)
    recorded, notices = summed(scans(endings))
    assert (recorded, notices) == ({"pipeline_error": 2}, {"sent": 1, "digest": 1})
    assert len(endings.mails) == 1


@FAMILIES
@pytest.mark.parametrize(("became", "claims"), [("sending", 2), ("pending", 2), ("sent", 2), ("digest", 1)])
@pytest.mark.parametrize("late", ["delivered", "refused"])
def test_one_who_was_given_up_comes_back(
    endings: Endings, monkeypatch: pytest.MonkeyPatch, leaders: None, family: Family, became: str, claims: int, late: str
) -> None:
    """R182, R183, R184: a sender that hung for a quarter of an hour changes nothing of what another has made of its notice."""
    job_id, send = endings.failed(family), endings.mailer.send
    seen: list[Any] = []

    def overtake(mail: Mail) -> Delivery:
        endings.pass_time(901)
        monkeypatch.setattr(endings.mailer, "send", _stopped if became == "sending" else send)
        if became == "pending":
            endings.sink.order(451)
        with suppress(StoppedError):
            endings.scan(replace(endings.policy, max_per_hour=0 if became == "digest" else 12))
        seen.append(endings.outcome(job_id, family))
        if late == "refused":
            endings.sink.order(550)
        return send(mail)

    monkeypatch.setattr(endings.mailer, "send", overtake)
    assert endings.scan().notices == {}
    assert endings.outcome(job_id, family) == seen[0]
    assert endings.notice(job_id, family) == (became, claims)


@pytest.mark.parametrize("turns", [True, False], ids=["in turn", "without turns"])
def test_two_digests(endings: Endings, monkeypatch: pytest.MonkeyPatch, turns: bool) -> None:
    """R189, R191, I13: what two win is all there is, and nothing of it twice, even with nothing but the locks of the claim left."""
    endings.flyers(130)
    endings.drain(replace(endings.policy, max_per_hour=0))
    meet = threading.Barrier(2, timeout=60)
    met: set[str] = set()

    def wait(_connection: object, _cursor: object, sql: str, *_rest: object) -> None:
        name = threading.current_thread().name
        if sql.startswith("SELECT flyer_tagging_jobs.id") and name not in met:
            met.add(name)
            meet.wait()

    if not turns:
        monkeypatch.setattr(records, "take_turn", lambda *_: None)
        event.listen(endings.house.engine, "after_cursor_execute", wait)

    def digest() -> Digests:
        return send_digests(endings.house.engine, {FLYERS: endings.policy}, endings.mailer)

    done = together(digest, digest)
    assert sum(each.covered.get(FLYERS.name, 0) for each in done) == 130
    assert sum(endings.summaries()) == 130
    assert len(met) == (0 if turns else 2)
    if not turns:
        # who leaves out the turn gives up the hour between the two
        endings.unguarded(
            """UPDATE flyer_tagging_jobs SET failure_notified_at = failure_notified_at - interval '1 hour'
               WHERE failure_notified_at = (SELECT min(failure_notified_at) FROM flyer_tagging_jobs)"""
        )


CHANGES = {
    "a sign of life": "UPDATE flyer_tagging_jobs SET status = status",
    "another verdict": "UPDATE flyer_tagging_jobs SET status = 'done', passed = true",
    "another try": "UPDATE flyer_tagging_jobs SET status = 'processing'",
    "gone": "DELETE FROM flyer_tagging_jobs",
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_row_that_changes_under_a_scan(endings: Endings, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    """R177, R178: what was read is not recorded of a row that is another by now; it is looked at anew once it has settled."""
    endings.flyer()
    read = scan.unrecorded

    def read_and_change(*arguments: Any, **options: Any) -> Any:
        rows = read(*arguments, **options)
        if rows:
            endings.house.execute(CHANGES[change])
        return rows

    with monkeypatch.context() as context:
        context.setattr(scan, "unrecorded", read_and_change)
        assert endings.scan() == Scan()
    assert endings.mails == [] and endings.notices() == {}
    endings.pass_time(121)
    expected = {"a sign of life": {"pipeline_error": 1}, "another verdict": {"success": 1}}.get(change, {})
    assert endings.scan().recorded == expected


@FAMILIES
@pytest.mark.parametrize("when", ["read", "claimed", "sent"])
def test_a_row_that_goes_under_a_scan(endings: Endings, monkeypatch: pytest.MonkeyPatch, family: Family, when: str) -> None:
    """R178, R203: a job that is deleted once it is read, claimed or told of disturbs nobody; the next row is seen to."""
    gone, stays = endings.failed(family, ago=301), endings.failed(family)
    send, read = endings.mailer.send, scan.unrecorded

    def go() -> None:
        if family is FLYERS:
            endings.house.execute("DELETE FROM flyer_tagging_jobs WHERE id = :id", id=gone)
        elif endings.house.rows("SELECT FROM transcription_jobs WHERE id = :id", id=gone):
            image = endings.house.loaded(endings.house.image_of(gone))
            delete_item(endings.house.engine, image.item_id, Operator("operator"))

    def read_and_go(*arguments: Any, **options: Any) -> Any:
        rows = read(*arguments, **options)
        go()
        return rows

    def send_and_go(mail: Mail) -> Delivery:
        if when == "claimed":
            go()
        delivery = send(mail)
        go()
        return delivery

    if when == "read":
        monkeypatch.setattr(scan, "unrecorded", read_and_go)
    else:
        monkeypatch.setattr(endings.mailer, "send", send_and_go)
    done = endings.scan(families=(family,))
    assert done.problems == {} and done.notices == {"sent": 1}
    assert endings.notice(stays, family) == ("sent", 1)
    assert len(endings.told(family)) == (1 if when == "read" else 2)
    assert endings.scan() == Scan()
