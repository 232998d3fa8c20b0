"""Runs for ingest batches that have something to do and that nobody works on."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from uuid import UUID

import dagster as dg
from sqlalchemy import Engine

from assets import process_ingest_batch, run_config, run_tags
from resources import BATCH_TAG, report_dead_runs, stamp_heartbeat
from scribe_pipeline.config import Settings
from scribe_pipeline.ingest import Batch, due_batches, raise_generation

_MAX_BATCHES = 10
_RUN_KEY_TAG = "dagster/run_key"


@dataclass(frozen=True)
class PastRun:
    """A Dagster run on a batch: the run key it spent, and when it ended (seconds since the epoch; None while it goes on)."""

    run_key: str | None
    ended_at: float | None


class Decision(Enum):
    """What to do for a batch that is due."""

    REQUEST = "a run"
    RAISE = "a run with a fresh key"
    WAIT = "nothing yet"


def run_key(batch_id: UUID, generation: int) -> str:
    """Return the key of the run that a generation of the batch asks for."""
    return f"batch:{batch_id}:{generation}"


def decide(batch: Batch, runs: Sequence[PastRun], now: float, backoff: float) -> Decision:
    """Decide for a due batch, given the runs on it so far.

    A spent key starts nothing ever again. If its run is over and the batch still has work, it ended badly: it did not ask for
    the next run itself. Then a fresh key is due, but not before `backoff` seconds, so that what fails at once does not spin.
    """
    if any(run.ended_at is None for run in runs):
        return Decision.WAIT
    key = run_key(batch.id, batch.dispatch_generation)
    spent = [run.ended_at for run in runs if run.run_key == key and run.ended_at is not None]
    if not spent:
        return Decision.REQUEST
    return Decision.RAISE if now - max(spent) >= backoff else Decision.WAIT


@dg.sensor(job=process_ingest_batch, minimum_interval_seconds=5, default_status=dg.DefaultSensorStatus.RUNNING)
def ingest_batch_sensor(
    context: dg.SensorEvaluationContext, settings: dg.ResourceParam[Settings], database: dg.ResourceParam[Engine]
) -> dg.SensorResult | dg.SkipReason:
    """Ask for a run of `process_ingest_batch` for each batch that is due and that no run works on."""
    report_dead_runs(context.instance)
    with database.connect() as connection:
        due = due_batches(connection, _MAX_BATCHES)
    requests = []
    for batch in due:
        decision = decide(batch, _past_runs(context.instance, batch), time.time(), settings.lease_seconds)
        if decision is Decision.WAIT:
            continue
        if decision is Decision.RAISE and not raise_generation(database, batch.id, batch.dispatch_generation):
            continue
        generation = batch.dispatch_generation + (decision is Decision.RAISE)
        requests.append(
            dg.RunRequest(
                run_key=run_key(batch.id, generation),
                run_config=run_config(batch),
                tags=run_tags(batch),
            )
        )
    stamp_heartbeat(database, "ingest_batch_sensor")
    if not requests:
        return dg.SkipReason(f"Batches with something to do: {len(due)}, all worked on or waiting." if due else "Nothing to do.")
    return dg.SensorResult(run_requests=requests)


def _past_runs(instance: dg.DagsterInstance, batch: Batch) -> list[PastRun]:
    records = instance.get_run_records(filters=dg.RunsFilter(tags={BATCH_TAG: str(batch.id)}))
    return [
        PastRun(
            record.dagster_run.tags.get(_RUN_KEY_TAG),
            (record.end_time or record.update_timestamp.timestamp()) if record.dagster_run.is_finished else None,
        )
        for record in records
    ]
