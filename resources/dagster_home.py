"""Dagster's own home: its configuration file, and its storage in a database beside the application's."""

import os
from pathlib import Path

import dagster as dg
import yaml
from sqlalchemy import URL

from resources.runs import ENGINES_TAG
from scribe_pipeline.config import Settings
from scribe_pipeline.database import sibling_url, sqlalchemy_url
from scribe_pipeline.errors import Category, ScribeError


def write_dagster_home(settings: Settings, database_url: str) -> Path:
    """Write `dagster.yaml` for this database, set DAGSTER_HOME, and return the folder.

    Dagster puts its configuration on the command lines of its processes, which every user of the machine can read. So the
    database's password stands in a file of its own, in libpq's form, and the configuration only names that file.
    """
    home = settings.home / "dagster"
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ScribeError(Category.UNAVAILABLE, f"the folder {home} cannot be made: {error.strerror}") from None
    storage = sqlalchemy_url(sibling_url(database_url, "_dagster"), driver="psycopg2")
    if storage.password is not None:
        escaped = str(storage.password).replace("\\", "\\\\").replace(":", "\\:")
        _write_private(home / "pgpass", f"*:*:*:*:{escaped}\n")
        query = storage.query | {"passfile": str(home / "pgpass")}
        storage = URL.create(storage.drivername, storage.username, None, storage.host, storage.port, storage.database, query)
    _write_private(home / "dagster.yaml", yaml.safe_dump(_configuration(storage.render_as_string())))
    os.environ["DAGSTER_HOME"] = str(home)
    return home


def dagster_instance(settings: Settings, database_url: str) -> dg.DagsterInstance:
    """Return the persistent instance, whose runs the UI shows."""
    return dg.DagsterInstance.from_config(str(write_dagster_home(settings, database_url)))


def _write_private(target: Path, text: str) -> None:
    new = target.with_name(f"{target.name}.{os.getpid()}")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    new.replace(target)


def _configuration(storage_url: str) -> dict[str, object]:
    return {
        "telemetry": {"enabled": False},
        "nux": {"enabled": False},
        "storage": {"postgres": {"postgres_url": storage_url}},
        # Capturing a step's output takes processes of its own for each; warnings reach the run's log as events instead.
        "compute_logs": {"module": "dagster._core.storage.noop_compute_log_manager", "class": "NoOpComputeLogManager"},
        "python_logs": {"managed_python_loggers": ["scribe_pipeline"], "python_log_level": "WARNING"},
        "run_coordinator": {
            "module": "dagster._core.run_coordinator",
            "class": "QueuedRunCoordinator",
            "config": {"dequeue_interval_seconds": 1},
        },
        # A run keeps all cores busy by itself, so they take turns.
        "concurrency": {
            "runs": {"max_concurrent_runs": 4, "tag_concurrency_limits": [{"key": key, "limit": 1} for key in ENGINES_TAG]}
        },
        "run_monitoring": {
            "enabled": True,
            "poll_interval_seconds": 15,
            "start_timeout_seconds": 120,
            "cancel_timeout_seconds": 60,
            # Well over what a run claims for; one that died before it said who it is would hold its place for ever.
            "max_runtime_seconds": 7200,
            "free_slots_after_run_end_seconds": 60,
        },
        "retention": {"sensor": {"purge_after_days": {"skipped": 1, "failure": 30, "success": 30}}},
    }
