"""`scribe dev`: everything that works by itself, on this machine: database, Dagster's web UI, its daemon with the sensors."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from commands.output import load_settings
from scribe_pipeline.errors import Category, ScribeError


def dev(port: Annotated[int, typer.Option(help="The web UI's port on this machine.")] = 3000) -> None:
    """Start the web UI, the daemon and the sensors, and work until interrupted."""
    import definitions
    from resources import dagster_instance, database_url, migrated_database, report_dead_runs

    settings = load_settings()
    migrated_database(settings).dispose()
    address = database_url(settings)
    with dagster_instance(settings, address) as instance:
        for run_id in report_dead_runs(instance):
            typer.echo(f"run {run_id} was left over by a process that is gone: reported as failed", err=True)
    workspace = Path(definitions.__file__).with_name("workspace.yaml")
    # A folder given by a relative name must be the same one in every process.
    environment = os.environ | {"SCRIBE_HOME": str(settings.home_path), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "dagster", "dev", "-w", str(workspace), "-h", "127.0.0.1", "-p", str(port)]
    typer.echo(f"web UI     http://127.0.0.1:{port}")
    typer.echo(f"database   {address.rpartition('@')[2]} (scribe db url prints the whole address)")
    # A shell that starts this in the background has it ignore interrupts, and Dagster stops on nothing else.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    process = subprocess.Popen(command, env=environment)
    signal.signal(signal.SIGTERM, lambda *_: process.send_signal(signal.SIGINT))
    try:
        code = process.wait()
    except KeyboardInterrupt:  # the terminal has told the child too
        code = process.wait()
    if code not in (0, -signal.SIGINT, 130):
        raise ScribeError(Category.UNAVAILABLE, f"Dagster ended by itself with code {code}")
