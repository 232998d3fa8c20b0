"""Runs for due transcription jobs that no batch sees to: retries, new requests, jobs of workers that vanished."""

import math
import time

import dagster as dg
from sqlalchemy import Engine

from assets import drain_transcription_queue
from resources import UNFINISHED, report_dead_runs, stamp_heartbeat
from scribe_pipeline.config import Settings
from scribe_pipeline.database import in_transaction
from scribe_pipeline.jobs import due_without_batch


def wants_run(due: int, under_way: int, since_failure: float, backoff: float) -> bool:
    """Whether a run is to be asked for: something is due, no run that drains the queue is waiting or at work, and the last one,
    if it failed, did so at least `backoff` seconds ago, so that what fails at once does not spin."""
    return due > 0 and under_way == 0 and since_failure >= backoff


@dg.sensor(job=drain_transcription_queue, minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING)
def transcription_queue_sensor(
    context: dg.SensorEvaluationContext, settings: dg.ResourceParam[Settings], database: dg.ResourceParam[Engine]
) -> dg.RunRequest | dg.SkipReason:
    """Ask for a run of `drain_transcription_queue` when jobs without a batch are due and none is under way."""
    report_dead_runs(context.instance)
    due = in_transaction(database, due_without_batch)
    runs = context.instance.get_runs(filters=dg.RunsFilter(job_name=drain_transcription_queue.name, statuses=UNFINISHED))
    stamp_heartbeat(database, "transcription_queue_sensor")
    if wants_run(due, len(runs), _since_failure(context.instance), settings.lease_seconds):
        return dg.RunRequest()
    return dg.SkipReason(f"Jobs due outside batches: {due}, runs under way: {len(runs)}.")


def _since_failure(instance: dg.DagsterInstance) -> float:
    """Return how many seconds ago the newest run failed; without end if it did not."""
    newest = instance.get_run_records(filters=dg.RunsFilter(job_name=drain_transcription_queue.name), limit=1)
    if not newest or newest[0].dagster_run.status is not dg.DagsterRunStatus.FAILURE:
        return math.inf
    return time.time() - (newest[0].end_time or newest[0].update_timestamp.timestamp())
