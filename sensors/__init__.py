"""When work runs: sensors and schedules. Each reads, decides in a pure function, and requests."""

from sensors.ingest_batches import ingest_batch_sensor

__all__ = ["ingest_batch_sensor"]
