"""Outcomes are recorded: which rows a tick takes and when, whoever has ended them, once, whatever happens on the way."""

from dataclasses import replace
from itertools import count
from typing import Any
from uuid import UUID, uuid4

import pytest
from sqlalchemy import event

from scribe_pipeline.database import DatabaseError
from scribe_pipeline.errors import Category
from scribe_pipeline.events import Operator
from scribe_pipeline.jobs import cancel_job, claim_jobs, end_attempt, request_job
from scribe_pipeline.outcomes import Family, Mail, Scan, scan_outcomes
from scribe_pipeline.outcomes.mail import Delivery
from tests.endings import FLYERS, JOBS, SHAPES, Endings
from tests.houses import House, StoppedError

OPERATOR = Operator("operator")
OLDER = "UPDATE {} SET updated_at = clock_timestamp() - make_interval(secs => :age) WHERE id = :id"
UNRECORDED = """SELECT id FROM {} WHERE status = ANY (:terminal) AND updated_at < clock_timestamp() - interval '2 minutes'
    AND num_nulls(outcome_class, outcome_facts, outcome_recorded_at) > 0"""
FAMILIES = pytest.mark.parametrize("family", [FLYERS, JOBS], ids=lambda family: family.name)


def left(house: House, family: Family) -> list[Any]:
    """Rows that ought to have an outcome by now and have none."""
    return house.rows(UNRECORDED.format(family.name), terminal=list(family.terminal))


def test_every_job_that_ends_is_recorded(endings: Endings) -> None:
    """R169, R196: each shape has its class, its facts and its time; nobody is told of a success or of what was cancelled."""
    ids = {shape: endings.flyer(shape) for shape in SHAPES}
    assert endings.drain() == dict.fromkeys(SHAPES, 1)
    assert left(endings.house, FLYERS) == []
    for shape, job_id in ids.items():
        row = endings.outcome(job_id)
        assert row.outcome_class == shape and row.outcome_facts["pages"] is None
        assert endings.notice(job_id) == (("none", 0) if shape in ("success", "cancelled") else ("sent", 1))
    assert {job_id for job_id, _ in endings.told()} == {
        str(ids[shape]) for shape in SHAPES if shape not in ("success", "cancelled")
    }


def test_only_rows_that_have_ended_are_taken(endings: Endings) -> None:
    """R172: a row that waits or is worked on is left alone, be its status known here or not; one that is recorded, too."""
    waiting = [endings.flyer(status=status) for status in ("queued", "processing", "paused", "DONE")]
    ended = endings.flyer()
    pending = endings.house.job()
    endings.house.job()
    running = endings.house.claim().job_id
    endings.pass_time(300)
    untouched = {
        family: [endings.outcome(i, family) for i in ids] for family, ids in ((FLYERS, waiting), (JOBS, (pending, running)))
    }
    assert endings.scan().recorded == {"pipeline_error": 1}
    recorded = endings.outcome(ended)
    assert endings.scan() == Scan()
    assert endings.outcome(ended) == recorded
    assert [endings.outcome(i) for i in waiting] == untouched[FLYERS]
    assert [endings.outcome(i, JOBS) for i in (pending, running)] == untouched[JOBS]


@FAMILIES
def test_a_row_settles_for_two_minutes(endings: Endings, family: Family) -> None:
    """R173, I14: a row that ended 1:59.999 ago is left for later, one that ended 2:00 ago is taken."""
    young, old = endings.failed(family), endings.failed(family)
    endings.stop_clock()
    for job_id, age in ((young, 119.999), (old, 120)):
        endings.unguarded(OLDER.format(family.name), id=job_id, age=age)
    assert endings.scan().recorded == {"pipeline_error": 1}
    assert endings.outcome(young, family).outcome_class is None
    assert endings.notice(old, family) == ("sent", 1)
    endings.pass_time(0.001)
    assert endings.scan().recorded == {"pipeline_error": 1}


def test_a_tick_takes_25_rows(endings: Endings) -> None:
    """R174: sixty rows: 25, 25, 10, and those first that ended first."""
    ages = {endings.flyer("success", ago=1000 - number): number for number in (*range(0, 60, 2), *range(1, 60, 2))}
    took = []
    for _ in range(3):
        before = {row.id for row in endings.house.rows("SELECT id FROM flyer_tagging_jobs WHERE outcome_recorded_at IS NULL")}
        assert endings.scan().problems == {}
        took.append(sorted(ages[i] for i in before if endings.outcome(i).outcome_recorded_at))
    assert took == [list(range(25)), list(range(25, 50)), list(range(50, 60))]
    assert endings.scan() == Scan()


def test_each_writer_s_rows_are_recorded(endings: Endings) -> None:
    """R203, R169: worker, other services, both stale sweeps, cancels and deletes: each row is recorded, and once."""
    house = endings.house
    house.complete(_claimed(house))
    house.complete(_claimed(house), failed=1)
    end_attempt(house.engine, _claimed(house), Category.AUTHENTICATION)
    house.job(max_attempts=1)
    house.claim()
    house.expire_lease()
    assert claim_jobs(house.engine, 60) == []  # whoever claims next fails a job whose last attempt has run out
    cancel_job(house.engine, house.job(), OPERATOR)
    image = house.page()
    house.job(image)
    successor = request_job(house.engine, image.id, "newspaper", 3, OPERATOR)
    assert successor.superseded is not None
    flyers = [endings.flyer(status="processing", ago=7200) for _ in range(5)]
    writes = (
        "SET status = 'done', passed = true",
        "SET status = 'done', passed = false, failures = '[\"qpdf: damaged\"]'",
        "SET status = 'failed', error = 'stale: no sign of life' WHERE updated_at < now() - interval '1 hour' AND",
        "SET status = 'failed', error = 'cancelled by user'",
        "SET status = 'failed', error = 'source file deleted'",
    )
    for job_id, write in zip(flyers, writes, strict=True):
        where = "" if write.endswith("AND") else "WHERE"
        assert house.execute(f"UPDATE flyer_tagging_jobs {write} {where} id = :id", id=job_id) == 1
    assert endings.drain() == {}, "all have only just ended"
    endings.pass_time(121)
    recorded = endings.drain()
    assert recorded == {"success": 2, "fidelity": 2, "pipeline_error": 3, "cancelled": 4}
    assert [row.outcome_class for row in map(endings.outcome, flyers)] == [
        "success", "fidelity", "pipeline_error", "cancelled", "cancelled",
    ]  # fmt: skip
    counted = "SELECT status, outcome_class, count(*) FROM transcription_jobs GROUP BY 1, 2 ORDER BY 1, 2"
    assert [tuple(row) for row in house.rows(counted)] == [
        ("canceled", "cancelled", 1),
        ("completed", "fidelity", 1),
        ("completed", "success", 1),
        ("failed", "pipeline_error", 2),
        ("pending", None, 1),
        ("superseded", "cancelled", 1),
    ]
    assert left(house, FLYERS) == left(house, JOBS) == []
    assert len(endings.told(FLYERS)) == 2 and len(endings.told(JOBS)) == 3


def _claimed(house: House) -> Any:
    house.job()
    return house.claim()


def test_a_tick_may_end_anywhere(endings: Endings) -> None:
    """R204, R179, R182: a scan that is stopped before any of its statements loses nothing, and the next ones go on."""
    twice = 0
    for number in count(1):
        job_id = endings.flyer()
        stopped = _stopped_at(endings, number)
        endings.scan()
        endings.pass_time(901)
        endings.scan()
        assert endings.notice(job_id)[0] == "sent"
        told = [claim for told_id, claim in endings.told() if told_id == str(job_id)]
        assert told in ([1], [2], [1, 2]), "told at least once, and again only if nobody could know"
        twice += len(told) - 1
        endings.pass_time(3600)
        if not stopped:
            break
    assert number > 8, "there are no statements to stop at"
    assert twice == 2, "two statements lie between a mail and what is known of it: how long to wait for the row, and the update"


def _stopped_at(endings: Endings, number: int) -> bool:
    """Stop a scan before its statement of that number, as if its process had ended there; False if it has fewer."""
    numbers = count(1)

    def stop(_connection: object, _cursor: object, sql: str, *_rest: object) -> None:
        if "advisory_unlock" not in sql and next(numbers) == number:
            raise StoppedError

    event.listen(endings.house.engine, "before_cursor_execute", stop)
    try:
        endings.scan()
    except StoppedError:
        return True
    finally:
        event.remove(endings.house.engine, "before_cursor_execute", stop)
    return False


def test_one_scan_at_a_time(endings: Endings, monkeypatch: pytest.MonkeyPatch) -> None:
    """R171: while one scan is at it another leaves; the next one leads again, even if the first has failed."""
    seen: list[Scan | None] = []
    send = endings.mailer.send

    def look(mail: Mail) -> Delivery:
        seen.append(scan_outcomes(endings.house.engine, {FLYERS: endings.policy}, endings.mailer))
        if len(seen) == 1:
            raise StoppedError
        return send(mail)

    monkeypatch.setattr(endings.mailer, "send", look)
    endings.flyer()
    with pytest.raises(StoppedError):
        endings.scan()
    endings.flyer()
    assert endings.scan().notices == {"sent": 1}
    assert seen == [None, None]


@FAMILIES
@pytest.mark.parametrize("what", ["columns", "table"])
def test_a_database_that_is_behind(endings: Endings, family: Family, what: str) -> None:
    """R219: without its columns or table a family is one problem a tick; the other goes on, and it does once they are there."""
    other = JOBS if family is FLYERS else FLYERS
    mine, others = endings.failed(family), endings.failed(other)
    forth, back = {
        "columns": (f"TABLE {family.name} RENAME outcome_class TO gone", f"TABLE {family.name} RENAME gone TO outcome_class"),
        "table": (f"TABLE {family.name} RENAME TO gone", f"TABLE gone RENAME TO {family.name}"),
    }[what]
    endings.house.execute(f"ALTER {forth}")
    problem = f"{family.name}: outcomes cannot be recorded before the database is migrated: run scribe db upgrade"
    first, second = endings.scan(), endings.scan()
    assert list(first.problems) == list(second.problems) == [problem]
    assert (first.recorded, first.notices) == ({"pipeline_error": 1}, {"sent": 1})
    assert endings.notice(others, other) == ("sent", 1)
    endings.house.execute(f"ALTER {back}")
    assert endings.scan().notices == {"sent": 1}
    assert endings.notice(mine, family) == ("sent", 1)


@FAMILIES
def test_a_family_that_cannot_be_read_is_no_quiet_scan(endings: Endings, family: Family) -> None:
    """R219: what is no matter of migrations is raised, when the other family has had its turn."""
    other = JOBS if family is FLYERS else FLYERS
    endings.failed(family)
    others = endings.failed(other)

    def spoil(_c: object, _cursor: object, sql: str, parameters: Any, *_rest: object) -> tuple[str, Any]:
        return ("SELECT 1 / 0", {}) if "is_history" in sql and f"FROM {family.name}" in sql else (sql, parameters)

    event.listen(endings.house.engine, "before_cursor_execute", spoil, retval=True)
    with pytest.raises(DatabaseError):
        endings.scan()
    event.remove(endings.house.engine, "before_cursor_execute", spoil)
    assert endings.notice(others, other) == ("sent", 1)


def test_a_family_that_is_switched_off_is_not_looked_at(endings: Endings) -> None:
    """R205: without its family's policy nothing is read of it and nothing written."""
    job_id = endings.flyer()
    seen: list[str] = []
    event.listen(endings.house.engine, "before_cursor_execute", lambda _c, _cursor, sql, *_rest: seen.append(sql))
    assert endings.scan(families=(JOBS,)) == Scan()
    assert seen and not any("flyer" in sql for sql in seen)
    assert endings.outcome(job_id).outcome_recorded_at is None


def test_notices_that_are_switched_off(endings: Endings) -> None:
    """R205, R196: with its notices off a family is recorded, and nobody is told, not even when they are on again."""
    off = replace(endings.policy, enabled=False)
    job_id, old = endings.failed_job(), endings.failed_job(ago=25 * 3600)
    assert endings.scan(off).recorded == {"pipeline_error": 2}
    assert endings.digest(off).covered == {}
    assert endings.notice(job_id, JOBS) == endings.notice(old, JOBS) == ("none", 0)
    assert endings.scan() == Scan()
    assert endings.mails == []


def test_the_first_run_is_silent(endings: Endings) -> None:
    """R199, A9: a thousand past jobs of all shapes are recorded without a mail, also those that only just ended."""
    endings.house.execute("DELETE FROM outcome_activations")
    for shape in SHAPES:
        endings.flyers(87, shape, ago=300)
        endings.flyers(80, shape, ago=40 * 86400)
    past = endings.failed_job()
    assert endings.scan().problems == {}
    active = "SELECT * FROM outcome_activations ORDER BY family"
    since = endings.house.rows(active)
    assert [row.family for row in since] == ["flyer_tagging_jobs", "transcription_jobs"]
    assert sum(endings.drain().values()) == 6 * 167 - 25
    assert endings.notices() == {"none": 2 * 167, "backfill": 4 * 167}
    assert endings.notice(past, JOBS) == ("backfill", 0)
    assert endings.digest().covered == {} and endings.mails == []
    assert endings.house.rows(active) == since, "the first run stays the first"
    new = endings.flyer(ago=0)
    endings.pass_time(121)
    endings.scan()
    assert endings.told() == [(str(new), 1)]


def test_earlier_attempts_are_counted(endings: Endings) -> None:
    """R213: earlier jobs of the same user on the same file or, without a file, on the same key; none else."""
    user, other, file, key = (uuid4() for _ in range(4))
    raw = {"input_key": f"raw/{key}"}
    for columns in ({"user_id": user, "file_id": file}, {"user_id": user, **raw}, {"file_id": file}):
        for ago in (9000, 8000):
            endings.flyer("success", ago=ago, **columns)
    endings.flyer("success", ago=9000, user_id=other, file_id=file)
    endings.flyer("success", ago=9000, user_id=user, file_id=uuid4())
    endings.flyer("success", ago=200, user_id=user, file_id=file)
    expected = {
        endings.flyer(user_id=user, file_id=file): 2,
        endings.flyer(user_id=user, file_id=file, input_key=f"raw/{key}"): 3,
        endings.flyer(user_id=user, **raw): 3,
        endings.flyer(user_id=other, file_id=file): 1,
        endings.flyer(user_id=user, file_id=uuid4()): 0,
        endings.flyer(file_id=file): 2,
        endings.flyer(user_id=user): 0,
    }
    endings.drain()
    assert {job_id: endings.outcome(job_id).outcome_facts["prior_attempts"] for job_id in expected} == expected


def test_earlier_jobs_of_an_image_are_counted(endings: Endings) -> None:
    """R213: of transcriptions, those of the same image."""
    image = endings.house.page()
    ids = [_cancelled(endings.house, image) for _ in range(3)]
    alone = _cancelled(endings.house, endings.house.page())
    endings.pass_time(300)
    endings.drain()
    found = [endings.outcome(job_id, JOBS).outcome_facts["prior_attempts"] for job_id in (*ids, alone)]
    assert found == [0, 1, 2, 0]


def _cancelled(house: House, image: Any) -> UUID:
    job_id = house.job(image)
    cancel_job(house.engine, job_id, OPERATOR)
    return job_id


@FAMILIES
def test_the_duration_ends_with_the_job(endings: Endings, family: Family) -> None:
    """R214: from the row's making to its end, as it was; no write of an outcome or of a notice moves that end."""
    endings.sink.order(451, times=2)
    job_id = endings.failed(family)
    before = endings.outcome(job_id, family)
    ended = before.updated_at if family is FLYERS else before.finished_at
    for _ in range(3):
        endings.scan()
    after = endings.outcome(job_id, family)
    assert endings.notice(job_id, family) == ("sent", 3)
    assert after.updated_at == before.updated_at
    assert after.outcome_facts["duration_seconds"] == pytest.approx((ended - before.created_at).total_seconds(), abs=0.001)
    if family is FLYERS:
        assert after.outcome_facts["duration_seconds"] == pytest.approx(60, abs=0.01)
