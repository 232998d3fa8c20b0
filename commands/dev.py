"""`scribe dev`: everything that works by itself, on this machine: database, Dagster's web UI, its daemon with the sensors."""

import ctypes
import fcntl
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from commands.output import load_settings
from scribe_pipeline.errors import Category, ScribeError

_PR_SET_PDEATHSIG = 1


def dev(port: Annotated[int, typer.Option(min=1, max=65535, help="The web UI's port on this machine.")] = 3000) -> None:
    """Start the web UI, the daemon and the sensors, and work until interrupted."""
    import definitions
    from resources import dagster_instance, report_dead_runs
    from scribe_pipeline.database import database_url, migrated_database

    settings = load_settings()
    _check_port(port)
    migrated_database(settings).dispose()
    address = database_url(settings)
    with dagster_instance(settings, address) as instance:
        for run_id in report_dead_runs(instance):
            typer.echo(f"run {run_id} was left over by a process that is gone: reported as failed", err=True)
    workspace = Path(definitions.__file__).with_name("workspace.yaml")
    # A folder given by a relative name must be the same one in every process.
    environment = os.environ | {"SCRIBE_HOME": str(settings.home), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace), "-h", "127.0.0.1", "-p", str(port)]
    # A shell that starts this in the background has it ignore interrupts, and Dagster stops on nothing else.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with _alone(settings.home):
        typer.echo(f"web UI     http://127.0.0.1:{port}")
        typer.echo(f"database   {address.rpartition('@')[2]} (scribe db url prints the whole address)")
        _work(command, environment)


def _work(command: list[str], environment: dict[str, str]) -> None:
    process = subprocess.Popen(command, env=environment, preexec_fn=_end_with_parent)
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
    try:
        code = process.wait()
    except KeyboardInterrupt:  # the terminal has told the child too
        code = process.wait()
    if code not in (0, -signal.SIGINT, 130):
        raise ScribeError(Category.UNAVAILABLE, f"Dagster ended by itself with code {code}")


def _check_port(port: int) -> None:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            problem = f"port {port} cannot be had ({error.strerror}): name another with --port"
            raise ScribeError(Category.UNAVAILABLE, problem) from None


@contextmanager
def _alone(home: Path) -> Iterator[None]:
    """See that no other `scribe dev` works in this home: two daemons would start everything twice."""
    with (home / "dev.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ScribeError(Category.UNAVAILABLE, f"another scribe dev works in {home}: stop it first") from None
        yield


def _end_with_parent() -> None:
    """Have Linux interrupt Dagster when this command is killed; its processes would go on and keep the port."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)
