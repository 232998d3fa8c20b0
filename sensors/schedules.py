"""What comes by the clock."""

import dagster as dg

from assets import check_standing, maintenance, outcome_scan, retention, send_digest, upload_cleanup

_ON = dg.DefaultScheduleStatus.RUNNING

maintenance_schedule = dg.ScheduleDefinition(
    name="maintenance_schedule", job=maintenance, cron_schedule="*/30 * * * *", default_status=_ON
)
upload_cleanup_schedule = dg.ScheduleDefinition(
    name="upload_cleanup_schedule", job=upload_cleanup, cron_schedule="*/10 * * * *", default_status=_ON
)
# Between two cleanups: what is told of storage is what a cleanup has left.
standing_checks_schedule = dg.ScheduleDefinition(
    name="standing_checks_schedule", job=check_standing, cron_schedule="5-59/10 * * * *", default_status=_ON
)
retention_schedule = dg.ScheduleDefinition(name="retention_schedule", job=retention, cron_schedule="15 3 * * *", default_status=_ON)
# The sensor asks for scans as well; this one comes by if the sensor is off, and sends again what was not delivered.
outcome_scan_schedule = dg.ScheduleDefinition(
    name="outcome_scan_schedule", job=outcome_scan, cron_schedule="*/5 * * * *", default_status=_ON
)
# Whether an hour has passed since the last digest, the database decides.
digest_schedule = dg.ScheduleDefinition(name="digest_schedule", job=send_digest, cron_schedule="*/5 * * * *", default_status=_ON)
