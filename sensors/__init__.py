"""When work runs: sensors and schedules. Each reads, decides in a pure function, and requests."""

from sensors.ingest_batches import ingest_batch_sensor
from sensors.schedules import maintenance_schedule, retention_schedule, standing_checks_schedule, upload_cleanup_schedule
from sensors.transcription_queue import transcription_queue_sensor

__all__ = [
    "ingest_batch_sensor",
    "maintenance_schedule",
    "retention_schedule",
    "standing_checks_schedule",
    "transcription_queue_sensor",
    "upload_cleanup_schedule",
]
