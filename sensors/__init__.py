"""When work runs: sensors and schedules. Each reads, decides in a pure function, and requests."""

from sensors.ingest_batches import ingest_batch_sensor
from sensors.schedules import (
    digest_schedule,
    maintenance_schedule,
    outcome_scan_schedule,
    retention_schedule,
    standing_checks_schedule,
    upload_cleanup_schedule,
)
from sensors.terminal_jobs import terminal_job_sensor
from sensors.transcription_queue import transcription_queue_sensor

__all__ = [
    "digest_schedule",
    "ingest_batch_sensor",
    "maintenance_schedule",
    "outcome_scan_schedule",
    "retention_schedule",
    "standing_checks_schedule",
    "terminal_job_sensor",
    "transcription_queue_sensor",
    "upload_cleanup_schedule",
]
