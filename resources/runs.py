"""Which process a Dagster run lives in, and what to do about a run whose process is gone.

Dagster's own launcher leaves a killed run STARTED for ever, where it holds a place in the queue.
"""

import socket
from collections.abc import Mapping
from pathlib import Path

import dagster as dg
import psutil

BATCH_TAG, WORKSPACE_TAG = "scribe/batch_id", "scribe/workspace"
# What a run that keeps all cores busy is tagged with; such runs take turns.
ENGINES_TAG = {"scribe/engines": "all"}
_HOST_TAG, _BOOT_TAG, _PID_TAG, _START_TAG = "scribe/host", "scribe/boot_id", "scribe/pid", "scribe/pid_started"
_START_TOLERANCE = 2.0  # both times are rounded
_BEGUN = [dg.DagsterRunStatus.NOT_STARTED, dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
UNFINISHED = [*_BEGUN, dg.DagsterRunStatus.QUEUED, dg.DagsterRunStatus.STARTING, dg.DagsterRunStatus.MANAGED]


def process_tags() -> dict[str, str]:
    """Return the tags that say which process works on a run."""
    process = psutil.Process()
    return {
        _HOST_TAG: socket.gethostname(),
        _BOOT_TAG: _boot_id(),
        _PID_TAG: str(process.pid),
        _START_TAG: f"{_started(process):.2f}",
    }


def report_dead_runs(instance: dg.DagsterInstance) -> list[str]:
    """Report runs failed whose process on this machine is gone, and return their ids.

    Runs of other machines are left alone, and so are runs that no process has begun to work on.
    """
    runs = instance.get_runs(filters=dg.RunsFilter(statuses=_BEGUN))
    dead = [run for run in runs if _is_dead(run.tags)]
    for run in dead:
        instance.report_run_failed(run, "The process of this run is gone.")
    return [run.run_id for run in dead]


def _is_dead(tags: Mapping[str, str]) -> bool:
    if tags.get(_HOST_TAG) != socket.gethostname():
        return False
    if tags[_BOOT_TAG] != _boot_id():
        return True
    try:
        process = psutil.Process(int(tags[_PID_TAG]))
        # a pid is given again; the time of its start tells the processes apart
        another = abs(_started(process) - float(tags[_START_TAG])) > _START_TOLERANCE
        return another or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _started(process: psutil.Process) -> float:
    """Return how many seconds after the machine's start the process began, whatever the clock has been set to since."""
    return process.create_time() - psutil.boot_time()


def _boot_id() -> str:
    linux = Path("/proc/sys/kernel/random/boot_id")
    return linux.read_text().strip() if linux.exists() else f"{psutil.boot_time():.0f}"
