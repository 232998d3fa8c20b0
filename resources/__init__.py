"""Configuration in, working object out: what ops, sensors and commands work with."""

from resources.dagster_home import dagster_instance, write_dagster_home
from resources.heartbeats import heartbeat_ages, stamp_heartbeat
from resources.runs import BATCH_TAG, UNFINISHED, WORKSPACE_TAG, process_tags, report_dead_runs
from resources.working import Progress, SilentProgress, database_url, ingest_settings, migrated_database, resource_defs, store_url

__all__ = [
    "BATCH_TAG",
    "UNFINISHED",
    "WORKSPACE_TAG",
    "Progress",
    "SilentProgress",
    "dagster_instance",
    "database_url",
    "heartbeat_ages",
    "ingest_settings",
    "migrated_database",
    "process_tags",
    "report_dead_runs",
    "resource_defs",
    "stamp_heartbeat",
    "store_url",
    "write_dagster_home",
]
