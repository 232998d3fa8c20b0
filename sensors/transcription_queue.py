"""Runs for due transcription jobs that no batch sees to: retries, new requests, jobs of workers that vanished."""

import dagster as dg
from sqlalchemy import Engine

from assets import drain_transcription_queue
from resources import UNFINISHED, report_dead_runs, stamp_heartbeat
from scribe_pipeline.database import in_transaction
from scribe_pipeline.jobs import due_without_batch


def wants_run(due: int, runs_under_way: int) -> bool:
    """Whether a run is to be asked for: something is due, and no run that drains the queue is waiting or at work."""
    return due > 0 and runs_under_way == 0


@dg.sensor(job=drain_transcription_queue, minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING)
def transcription_queue_sensor(
    context: dg.SensorEvaluationContext, database: dg.ResourceParam[Engine]
) -> dg.RunRequest | dg.SkipReason:
    """Ask for a run of `drain_transcription_queue` when jobs without a batch are due and none is under way."""
    report_dead_runs(context.instance)
    due = in_transaction(database, due_without_batch)
    runs = context.instance.get_runs(filters=dg.RunsFilter(job_name=drain_transcription_queue.name, statuses=UNFINISHED))
    stamp_heartbeat(database, "transcription_queue_sensor")
    if wants_run(due, len(runs)):
        return dg.RunRequest()
    return dg.SkipReason(f"Jobs due outside batches: {due}, runs under way: {len(runs)}.")
