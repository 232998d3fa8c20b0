"""Configuration in, working object out: what ops, sensors and commands work with."""

from resources.dagster_home import dagster_instance, write_dagster_home
from resources.heartbeats import heartbeat_ages, stamp_heartbeat
from resources.runs import BATCH_TAG, ENGINES_TAG, UNFINISHED, WORKSPACE_TAG, process_tags, report_dead_runs
from resources.working import Progress, SilentProgress, ingest_settings, resource_defs

__all__ = [
    "BATCH_TAG",
    "ENGINES_TAG",
    "UNFINISHED",
    "WORKSPACE_TAG",
    "Progress",
    "SilentProgress",
    "dagster_instance",
    "heartbeat_ages",
    "ingest_settings",
    "process_tags",
    "report_dead_runs",
    "resource_defs",
    "stamp_heartbeat",
    "write_dagster_home",
]
