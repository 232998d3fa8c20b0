"""When `updated_at` of a job stays, and which ways a notice may go: the triggers of the outcome columns, tried on the database.

R202: `.ci/run` runs this file with all the others.
"""

import json
from itertools import product
from uuid import UUID

import pytest
import uuid_utils.compat as uuid_utils
from sqlalchemy import Connection, text

from scribe_pipeline.database import in_transaction
from scribe_pipeline.errors import Category
from scribe_pipeline.jobs import end_attempt
from scribe_pipeline.outcomes import Family
from tests.endings import FLYERS, JOBS
from tests.houses import House
from tests.store.refusals import outcome
from tests.store.test_checks import REFUSED
from tests.store.test_checks import outcome as tried

FAMILIES = pytest.mark.parametrize("family", [FLYERS, JOBS], ids=["flyer", "job"])
# The states that a notice may go to from another one, and whether that is a claim, so one attempt more; any may also stay.
WAYS = {
    "sending": {("sent", 0), ("pending", 0), ("failed", 0), ("digest", 0), ("unconfigured", 0), ("sending", 1)},
    "pending": {("sending", 1), ("failed", 0), ("digest", 0), ("unconfigured", 0)},
    "none": set(),
    "backfill": set(),
    "sent": set(),
    "failed": set(),
    "digest": set(),
    "unconfigured": set(),
}  # fmt: skip


def a_job(house: House, family: Family, *, ended: bool) -> UUID:
    """A job that has failed, or one at work, whose last change was an hour ago."""
    if family is FLYERS:
        job_id = uuid_utils.uuid7()
        status = "failed" if ended else "processing"
        house.execute("INSERT INTO flyer_tagging_jobs (id, status) VALUES (:id, :status)", id=job_id, status=status)
    else:
        job_id = house.job()
        claim = house.claim()
        if ended:
            end_attempt(house.engine, claim, Category.AUTHENTICATION)
    past_triggers(house, f"UPDATE {family.name} SET updated_at = now() - interval '1 hour'")
    return job_id


def past_triggers(house: House, statement: str) -> None:
    """Bring a row to where a test begins."""

    def run(connection: Connection) -> None:
        connection.execute(text("SET LOCAL session_replication_role = replica"))
        connection.execute(text(statement))

    in_transaction(house.engine, run)


def touched(house: House, family: Family, job_id: UUID, change: str) -> str:
    """Make a change, and return whether `updated_at` is `new`, which is the transaction's time, or `kept`."""
    before = house.value(f"SELECT updated_at FROM {family.name} WHERE id = :id", id=job_id)
    statement = f"UPDATE {family.name} SET {change} WHERE id = :id RETURNING updated_at, updated_at = now() AS is_now"
    row = in_transaction(house.engine, lambda connection: connection.execute(text(statement), {"id": job_id}).one())
    assert row.is_now or row.updated_at == before
    return "new" if row.is_now else "kept"


@pytest.mark.parametrize(("ended", "other", "recorded"), list(product([False, True], repeat=3)))
def test_updated_at_of_a_tagging_job_stays_only_under_three_conditions(
    house: House, ended: bool, other: bool, recorded: bool
) -> None:
    """R200, R201: the job had ended already, something of its outcome changes, and nothing else does. Any other write counts."""
    job_id = a_job(house, FLYERS, ended=ended)
    changes = ["error = 'another'"] * other + [outcome("none", 0, "success")] * recorded
    expected = "kept" if ended and recorded and not other else "new"
    assert touched(house, FLYERS, job_id, ", ".join(changes or ["status = status"])) == expected


@pytest.mark.parametrize(("ended", "other", "recorded"), list(product([False, True], repeat=3)))
def test_updated_at_of_a_transcription_job_stays_only_under_three_conditions(
    house: House, ended: bool, other: bool, recorded: bool
) -> None:
    """R200, R201: the same where a job that has ended cannot change, and one that has not has no outcome but as it ends."""
    job_id = a_job(house, JOBS, ended=True) if ended else house.job()
    another = "error = 'another'" if ended else "status = 'superseded', finished_at = clock_timestamp()"
    change = ", ".join([another] * other + [outcome("none", 0, "success")] * recorded or ["status = status"])
    refusal = REFUSED if ended and other else "transcription_jobs_outcome_of_ended" if recorded and not (ended or other) else None
    if refusal is None:
        assert touched(house, JOBS, job_id, change) == ("kept" if ended and recorded else "new")
    else:
        assert tried(house, f"UPDATE transcription_jobs SET {change}", "SELECT") == refusal


@FAMILIES
@pytest.mark.parametrize(
    ("notice", "steps"),
    [
        ("digest", ["failure_notified_at = clock_timestamp()", "failure_notified_at = NULL"]),
        ("pending", ["""outcome_facts = outcome_facts || '{"notice": "failed"}'"""]),
    ],
)
def test_steps_of_a_notice_are_no_change_of_the_job(house: House, family: Family, notice: str, steps: list[str]) -> None:
    """R200, R214: when a job ended is not told by when its digest was claimed or released, nor by what became of its notice."""
    job_id = a_job(house, family, ended=True)
    assert [touched(house, family, job_id, step) for step in (outcome(notice, 1), *steps)] == ["kept"] * (1 + len(steps))
    assert touched(house, family, job_id, "outcome_facts = outcome_facts") == "new", "this changes nothing"


@FAMILIES
def test_a_sign_of_life_is_a_change(house: House, family: Family) -> None:
    """R201: setting the status that the job has already is how a worker says that it is alive."""
    job_id = a_job(house, family, ended=False)
    status = "processing" if family is FLYERS else "running"
    assert touched(house, family, job_id, f"status = '{status}'") == "new"


@FAMILIES
@pytest.mark.parametrize("ended", [False, True])
def test_nobody_sets_updated_at(house: House, family: Family, ended: bool) -> None:
    """R200: what a statement says of `updated_at` does not stick, with something of the outcome or without."""
    job_id = a_job(house, family, ended=ended)
    forged = "updated_at = '2000-01-01'"
    if ended:
        assert touched(house, family, job_id, f"{outcome('digest', 0)}, {forged}") == "kept"
        assert touched(house, family, job_id, f"failure_notified_at = clock_timestamp(), {forged}") == "kept"
    assert touched(house, family, job_id, forged) == "new"


@FAMILIES
@pytest.mark.parametrize("was", WAYS)
def test_a_notice_goes_its_ways_only(house: House, family: Family, was: str) -> None:
    """R183, R196, I14: from each state to each, with an attempt less, none more, one more and two."""
    a_job(house, family, ended=True)
    past_triggers(house, f"UPDATE {family.name} SET {outcome(was, 2)}")
    gone = set()
    for becomes, claims in product(WAYS, (-1, 0, 1, 2)):
        state = {"notice": becomes, "notice_attempts": 2 + claims}
        if claims == 1:
            state["notice_claimed_at"] = "2026-01-02T00:00:00.000000Z"
        told = "coalesce(failure_notified_at, clock_timestamp())" if becomes == "sent" else "NULL"
        change = f"outcome_facts = outcome_facts || '{json.dumps(state)}', failure_notified_at = {told}"
        if tried(house, f"UPDATE {family.name} SET {change}", "SELECT") == "1 rows":
            gone.add((becomes, claims))
    assert gone == WAYS[was] | {(was, 0)}


@FAMILIES
@pytest.mark.parametrize(
    ("was", "change"),
    [
        ("sent", "failure_notified_at = clock_timestamp() + interval '1 second'"),
        ("digest", "failure_notified_at = failure_notified_at + interval '1 second'"),
        ("pending", """outcome_facts = outcome_facts || '{"notice_claimed_at": "2026-01-02T00:00:00.000000Z"}'"""),
        ("pending", """outcome_facts = outcome_facts || '{"pages": 7}'"""),
        ("pending", """outcome_facts = outcome_facts - 'failures'"""),
        ("pending", "outcome_class = 'fidelity'"),
        ("pending", "outcome_recorded_at = outcome_recorded_at + interval '1 second'"),
        ("pending", "outcome_class = NULL, outcome_facts = NULL, outcome_recorded_at = NULL"),
    ],
)
def test_what_was_recorded_stays(house: House, family: Family, was: str, change: str) -> None:
    """R177, R193, I14: class, facts and time are recorded once; what was told when, and when a claim was made, is not rewritten."""
    a_job(house, family, ended=True)
    past_triggers(house, f"UPDATE {family.name} SET {outcome(was, 1, told=was == 'digest')}")
    assert tried(house, f"UPDATE {family.name} SET {change}", "SELECT") == REFUSED
