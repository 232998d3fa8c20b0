"""Runs for jobs that have ended and whose outcome is not recorded yet."""

import dagster as dg
from sqlalchemy import Engine

from assets import outcome_scan
from resources import UNFINISHED, report_dead_runs, stamp_heartbeat
from scribe_pipeline.config import Settings
from scribe_pipeline.database import in_transaction
from scribe_pipeline.outcomes import Waiting, longest_waiting, notice_policies

# A burst of failures brings a run every few seconds: what is to be sent again waits for the schedule's.
_RUN_CONFIG = {"ops": {"record_outcomes": {"config": {"send_again": False}}}}


def scan_key(waiting: Waiting | None, under_way: int) -> str | None:
    """Return the key of the run to be asked for: None if no job waits, or a run that scans is waiting or at work.

    As long as the same job waits longest, the key is a new one every ten minutes only, so that what fails at once does not spin.
    """
    if waiting is None or under_way:
        return None
    return f"outcomes:{waiting.job_id}:{waiting.bucket}"


@dg.sensor(job=outcome_scan, minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING)
def terminal_job_sensor(
    context: dg.SensorEvaluationContext, settings: dg.ResourceParam[Settings], database: dg.ResourceParam[Engine]
) -> dg.RunRequest | dg.SkipReason:
    """Ask for a run of `outcome_scan` when a job waits that a scan would take, and none is under way."""
    report_dead_runs(context.instance)
    families = notice_policies(settings)
    waiting = in_transaction(database, lambda connection: longest_waiting(connection, families))
    runs = context.instance.get_runs(filters=dg.RunsFilter(job_name=outcome_scan.name, statuses=UNFINISHED))
    stamp_heartbeat(database, "terminal_job_sensor")
    key = scan_key(waiting, len(runs))
    if key is not None:
        return dg.RunRequest(run_key=key, run_config=_RUN_CONFIG)
    seconds = 0 if waiting is None else waiting.seconds
    return dg.SkipReason(f"Seconds that a job has waited for its outcome: {seconds:.0f}, runs under way: {len(runs)}.")
