"""Standing checks: what must hold at any time if the house works, whatever it works on. They look, and change nothing."""

import dagster as dg
from sqlalchemy import Engine

from assets.outcome_summary import outcome_summary
from assets.specs import INGESTED_IMAGES, TRANSCRIBED_PAGES
from assets.storage_report import storage_report
from resources import heartbeat_ages
from scribe_pipeline.config import Settings
from scribe_pipeline.database import in_transaction
from scribe_pipeline.jobs import queue_health
from scribe_pipeline.outcomes import longest_waiting, notice_policies
from scribe_pipeline.storage import UPLOAD, cleanup_health
from scribe_pipeline.workspaces import read_usage

WATCHED_SENSORS = ("ingest_batch_sensor", "transcription_queue_sensor", "terminal_job_sensor")
# A sensor ticks every few seconds; a lease is taken over within a minute, and within half an hour if all else fails.
_MAX_SILENCE_SECONDS = 120
_MAX_EXPIRED_SECONDS = 600
_MAX_QUEUE_AGE_SECONDS = 3600
# Ten minutes after it has ended: for the first two of them a job is left alone.
_MAX_UNRECORDED_SECONDS = 480


@dg.asset_check(asset=INGESTED_IMAGES, description="Each sensor has looked within the last two minutes.")
def sensor_heartbeats(database: dg.ResourceParam[Engine]) -> dg.AssetCheckResult:
    """Pass if no sensor is silent."""
    ages = heartbeat_ages(database)
    silent = [name for name in WATCHED_SENSORS if ages.get(name, float("inf")) > _MAX_SILENCE_SECONDS]
    return dg.AssetCheckResult(
        passed=not silent,
        severity=dg.AssetCheckSeverity.ERROR,
        description=f"silent: {', '.join(silent)}" if silent else "all sensors look",
        metadata={f"{name} (s ago)": ages[name] for name in WATCHED_SENSORS if name in ages},
    )


@dg.asset_check(asset=TRANSCRIBED_PAGES, description="No lease ran out more than ten minutes ago without being taken over.")
def expired_leases(database: dg.ResourceParam[Engine]) -> dg.AssetCheckResult:
    """Pass if somebody takes over from workers that vanish."""
    health = in_transaction(database, lambda connection: queue_health(connection, _MAX_EXPIRED_SECONDS))
    return dg.AssetCheckResult(
        passed=health.expired_leases == 0,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata={"expired": health.expired_leases, "running": health.running},
    )


@dg.asset_check(asset=TRANSCRIBED_PAGES, description="No job has been due for more than an hour.")
def queue_age(database: dg.ResourceParam[Engine]) -> dg.AssetCheckResult:
    """Pass, with a warning otherwise, if the queue is worked off faster than it grows."""
    health = in_transaction(database, lambda connection: queue_health(connection, _MAX_EXPIRED_SECONDS))
    return dg.AssetCheckResult(
        passed=health.oldest_due_seconds <= _MAX_QUEUE_AGE_SECONDS,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"oldest due (s)": health.oldest_due_seconds, "due": health.due},
    )


@dg.asset_check(asset=storage_report, description="No removal has been given up.")
def failed_removals(database: dg.ResourceParam[Engine]) -> dg.AssetCheckResult:
    """Pass if no row of the cleanup outbox has failed for good."""
    health = in_transaction(database, lambda connection: cleanup_health(connection, [UPLOAD]))
    return dg.AssetCheckResult(passed=health.failed == 0, severity=dg.AssetCheckSeverity.ERROR, metadata={"failed": health.failed})


@dg.asset_check(asset=storage_report, description="No removal has been due for longer than SCRIBE_CLEANUP_WARN_SECONDS.")
def removal_age(database: dg.ResourceParam[Engine], settings: dg.ResourceParam[Settings]) -> dg.AssetCheckResult:
    """Pass, with a warning otherwise, if what is given up is removed before long."""
    health = in_transaction(database, lambda connection: cleanup_health(connection, [UPLOAD]))
    return dg.AssetCheckResult(
        passed=health.oldest_due_seconds <= settings.cleanup_warn_seconds,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"oldest due (s)": health.oldest_due_seconds, "due": health.due},
    )


@dg.asset_check(asset=storage_report, description="Uploads take up no more than SCRIBE_STORAGE_WARN_SHARE of what there may be.")
def stored_bytes(database: dg.ResourceParam[Engine], settings: dg.ResourceParam[Settings]) -> dg.AssetCheckResult:
    """Pass, with a warning otherwise, if all workspaces together are some way from their limit."""
    together = in_transaction(database, read_usage)[0]
    return dg.AssetCheckResult(
        passed=together.used_bytes <= settings.storage_warn_share * together.limit_bytes,
        severity=dg.AssetCheckSeverity.WARN,
        metadata={"used": together.used_bytes, "waiting": together.pending_bytes, "limit": together.limit_bytes},
    )


@dg.asset_check(asset=outcome_summary, description="No job ended more than ten minutes ago without its outcome being recorded.")
def unrecorded_outcomes(database: dg.ResourceParam[Engine], settings: dg.ResourceParam[Settings]) -> dg.AssetCheckResult:
    """Pass if somebody records what became of jobs, of those families whose outcomes are to be recorded."""
    families = notice_policies(settings)
    waiting = in_transaction(database, lambda connection: longest_waiting(connection, families))
    return dg.AssetCheckResult(
        passed=waiting is None or waiting.seconds <= _MAX_UNRECORDED_SECONDS,
        severity=dg.AssetCheckSeverity.ERROR,
        metadata={"waits (s)": 0.0} if waiting is None else {"waits (s)": waiting.seconds, "job": waiting.job_id},
    )


standing_checks = [
    sensor_heartbeats,
    expired_leases,
    queue_age,
    failed_removals,
    removal_age,
    stored_bytes,
    unrecorded_outcomes,
]
check_standing = dg.define_asset_job(
    "standing_checks",
    selection=dg.AssetSelection.checks(*standing_checks) | dg.AssetSelection.assets(outcome_summary, storage_report),
    executor_def=dg.in_process_executor,
    description="Looks at sensors, leases, the queue's age, storage and outcomes; reports what is stored and what became of jobs.",
)
