"""Dagster's view of the queue: a run drains it, a sensor asks for runs, a schedule comes by, checks look, old runs go."""

import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import dagster as dg
import pytest

from definitions import build_defs
from resources import stamp_heartbeat
from scribe_pipeline.config import Settings
from scribe_pipeline.database import DatabaseError
from scribe_pipeline.errors import Category
from scribe_pipeline.jobs import end_attempt
from sensors.transcription_queue import wants_run
from tests.conftest import ROOT
from tests.houses import FakeEngines, House, InlinePool
from tests.proofs import wait_until


def definitions(house: House, **settings: Any) -> dg.Definitions:
    """The definitions with engines that answer at once."""
    made = Settings(home=house.folder, blob_url=house.store_url, **settings)
    return build_defs(settings=made, database=house.engine, pool=InlinePool())


def execute(house: House, job: str, instance: dg.DagsterInstance, **options: Any) -> dg.ExecuteInProcessResult:
    """Execute a job."""
    return definitions(house).resolve_job_def(job).execute_in_process(instance=instance, raise_on_error=False, **options)


def statuses(house: House) -> dict[str, int]:
    """How many jobs stand how."""
    return dict(house.rows("SELECT status, count(*) FROM transcription_jobs GROUP BY status"))


def test_a_run_drains_the_queue_in_a_fixed_number_of_events(house: House, engines: FakeEngines) -> None:
    """R37, R94: one run works on all that is due, of any workspace, and records as many events for two pages as for twenty."""
    instance = dg.DagsterInstance.ephemeral()
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'second')")
    events = {}
    for number in (2, 20):
        for index in range(number):
            house.job(house.page(workspace=("default", "second")[index % 2]))
        result = execute(house, "drain_transcription_queue", instance)
        assert result.success
        (made,) = [event.step_materialization_data.materialization for event in result.all_events if event.is_step_materialization]
        assert (made.asset_key.to_user_string(), made.metadata["pages"].value) == ("transcribed_pages", number)
        events[number] = len(instance.all_logs(result.run_id))
    assert statuses(house) == {"completed": 22}
    assert events[2] == events[20]


def test_maintenance_takes_up_what_was_missed(house: House, engines: FakeEngines) -> None:
    """R105, R106, R107: with every wake-up lost, the half-hourly pass does expired leases, due retries and new jobs."""
    for _ in range(3):
        house.job()
    house.claim()
    house.expire_lease()
    end_attempt(house.engine, house.claim(), Category.UPSTREAM)
    house.execute(
        "UPDATE transcription_jobs SET retry_after = clock_timestamp() - interval '1 minute' WHERE retry_after IS NOT NULL"
    )
    assert execute(house, "maintenance", dg.DagsterInstance.ephemeral()).success
    assert statuses(house) == {"completed": 3}
    assert house.rows("SELECT outcome, count(*) FROM transcription_job_attempts GROUP BY 1 ORDER BY 1") == [
        ("completed", 3), ("lease_expired", 1), ("retryable_failed", 1)
    ]  # fmt: skip


def test_what_comes_by_the_clock() -> None:
    """R105, R171: recovery every thirty minutes, checks and cleanup every ten, outcomes every five; all are on by themselves."""
    running = [schedule for schedule in build_defs().schedules or [] if schedule.default_status is dg.DefaultScheduleStatus.RUNNING]
    schedules = {schedule.name: (schedule.cron_schedule, schedule.job_name) for schedule in running}
    assert schedules == {
        "outcome_scan_schedule": ("*/5 * * * *", "outcome_scan"),
        "digest_schedule": ("*/5 * * * *", "send_digest"),
        "maintenance_schedule": ("*/30 * * * *", "maintenance"),
        "standing_checks_schedule": ("5-59/10 * * * *", "standing_checks"),
        "upload_cleanup_schedule": ("*/10 * * * *", "upload_cleanup"),
        "retention_schedule": ("15 3 * * *", "retention"),
    }


def test_the_sensor_asks_once(house: House) -> None:
    """R107: a due job that no batch sees to has a run asked for; not while one is under way, and not for a batch's job."""
    instance = dg.DagsterInstance.ephemeral()
    sensor = build_defs().resolve_sensor_def("transcription_queue_sensor")

    def asked(backoff: float = 60) -> int:
        resources = {"settings": Settings(lease_seconds=backoff), "database": house.engine}
        with dg.build_sensor_context(instance=instance, resources=resources) as context:
            return len(sensor.evaluate_tick(context).run_requests or [])

    house.ingested(1)
    assert asked() == 0
    job = house.job()
    assert asked() == 1
    run = instance.create_run_for_job(build_defs().resolve_job_def("drain_transcription_queue"))
    assert asked() == 0
    instance.report_run_failed(run)
    assert asked() == 0, "it failed just now"
    wait_until(lambda: asked(backoff=1), "the next request")
    house.execute("UPDATE transcription_jobs SET retry_after = clock_timestamp() + interval '1 hour' WHERE id = :id", id=job)
    assert asked(backoff=1) == 0


@pytest.mark.parametrize(
    ("due", "runs", "since_failure", "wanted"),
    [(0, 0, inf, False), (1, 0, inf, True), (1000, 0, 60, True), (1, 0, 59, False), (1, 1, inf, False), (0, 2, inf, False)],
)
def test_when_a_run_is_wanted(due: int, runs: int, since_failure: float, wanted: bool) -> None:
    """R107: the decision is a function of four numbers: what fails at once is not asked for again and again."""
    assert wants_run(due, runs, since_failure, backoff=60) is wanted


def test_a_sensor_without_a_database_is_red(house: House) -> None:
    """R30: a read that fails raises, so that the tick shows it; no heartbeat is stamped."""
    sensor = build_defs().resolve_sensor_def("transcription_queue_sensor")
    house.execute("ALTER TABLE transcription_jobs RENAME TO gone")
    instance = dg.DagsterInstance.ephemeral()
    with (
        dg.build_sensor_context(instance=instance, resources={"settings": Settings(), "database": house.engine}) as context,
        pytest.raises(DatabaseError),
    ):
        sensor.evaluate_tick(context)
    house.execute("ALTER TABLE gone RENAME TO transcription_jobs")
    assert house.rows("SELECT name FROM sensor_heartbeats") == []


def checks(house: House) -> dict[str, bool]:
    """What the standing checks of the queue say."""
    result = execute(house, "standing_checks", dg.DagsterInstance.ephemeral())
    assert result.success
    said = {evaluation.check_name: evaluation.passed for evaluation in result.get_asset_check_evaluations()}
    return {name: said[name] for name in ("sensor_heartbeats", "expired_leases", "queue_age")}


def test_standing_checks_look_for_what_stands_still(house: House, engines: FakeEngines) -> None:
    """R37, R106: silent sensors, leases that nobody takes over and a queue that nobody works off are told in the UI."""
    assert checks(house) == {"sensor_heartbeats": False, "expired_leases": True, "queue_age": True}
    for name in ("ingest_batch_sensor", "transcription_queue_sensor", "terminal_job_sensor"):
        stamp_heartbeat(house.engine, name)
    house.job()
    house.job()
    house.claim()
    assert checks(house) == {"sensor_heartbeats": True, "expired_leases": True, "queue_age": True}
    house.execute("UPDATE sensor_heartbeats SET ticked_at = clock_timestamp() - interval '3 minutes' WHERE name LIKE 'ingest%'")
    house.execute("UPDATE transcription_jobs SET lease_until = clock_timestamp() - interval '11 minutes' WHERE status = 'running'")
    house.execute("UPDATE transcription_jobs SET retry_after = clock_timestamp() - interval '61 minutes' WHERE status = 'pending'")
    assert checks(house) == {"sensor_heartbeats": False, "expired_leases": False, "queue_age": False}


def test_old_runs_go(house: House) -> None:
    """Runs that were over long ago are deleted with their events; young ones and those under way stay."""
    instance = dg.DagsterInstance.ephemeral()
    job = build_defs().resolve_job_def("retention")
    over, young, open_run = (instance.create_run_for_job(job) for _ in range(3))
    for run in (over, young):
        instance.report_run_failed(run)
    config = {"ops": {"delete_old_runs": {"config": {"days": 30.0}}}}
    assert execute(house, "retention", instance, run_config=config).success
    assert instance.has_run(over.run_id)
    _age(instance, over.run_id, days=31)
    assert execute(house, "retention", instance, run_config=config).success
    assert not instance.has_run(over.run_id)
    assert instance.has_run(young.run_id) and instance.has_run(open_run.run_id)


def _age(instance: dg.DagsterInstance, run_id: str, days: int) -> None:
    """Set a run's last change back."""
    from dagster._core.storage.runs.schema import RunsTable

    then = (datetime.now(UTC) - timedelta(days=days)).replace(tzinfo=None)
    with instance.run_storage.connect() as connection:  # type: ignore[attr-defined]
        connection.execute(RunsTable.update().where(RunsTable.c.run_id == run_id).values(update_timestamp=then))


RUN = """
import sys
from concurrent.futures import Future
from math import inf
from pathlib import Path
import dagster as dg
from definitions import build_defs
from scribe_pipeline.config import Settings
from scribe_pipeline.database import connect
from scribe_pipeline.engines import Ticket
from tests.houses import InlinePool

class SlowPool(InlinePool):
    def submit(self, task, *arguments):
        print("begun", flush=True)
        self.idle -= 1
        return Ticket(Future(), 0)

url, home, store = sys.argv[1:]
settings = Settings(home=Path(home), blob_url=store)
defs = build_defs(settings=settings, database=connect(url), pool=SlowPool())
result = defs.resolve_job_def("drain_transcription_queue").execute_in_process(
    instance=dg.DagsterInstance.ephemeral(), raise_on_error=False)
print("over", flush=True)
"""


def test_a_terminated_run_gives_back(house: House, database_url: str) -> None:
    """R37: terminating a run, which interrupts its process, closes its attempts as retryable, due in five seconds."""
    house.job()
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, database_url, str(house.folder), house.store_url],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=300)
    (row,) = house.rows(
        """SELECT j.status, a.outcome, a.error_category, extract(epoch FROM j.retry_after - j.updated_at) AS seconds
           FROM transcription_jobs j JOIN transcription_job_attempts a ON a.job_id = j.id"""
    )
    assert tuple(row)[:3] == ("pending", "retryable_failed", "interrupted")
    assert abs(float(row.seconds) - 5) < 1
