"""What comes by the clock."""

import dagster as dg

from assets import check_standing, maintenance, retention

_ON = dg.DefaultScheduleStatus.RUNNING

maintenance_schedule = dg.ScheduleDefinition(
    name="maintenance_schedule", job=maintenance, cron_schedule="*/30 * * * *", default_status=_ON
)
standing_checks_schedule = dg.ScheduleDefinition(
    name="standing_checks_schedule", job=check_standing, cron_schedule="*/10 * * * *", default_status=_ON
)
retention_schedule = dg.ScheduleDefinition(name="retention_schedule", job=retention, cron_schedule="15 3 * * *", default_status=_ON)
