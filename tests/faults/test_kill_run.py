"""SIGKILL of the main job at any moment: another run finishes what was begun, once, and nothing is left over."""

import json
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from dagster import DagsterInstance
from sqlalchemy import create_engine, text

from scribe_pipeline.database import sqlalchemy_url
from tests.commands import SCRIBE, scribe, scribe_json
from tests.conftest import ROOT, broken_invariants
from tests.proofs import living, seeded, size_of, tell

SAMPLES = [ROOT / "samples" / "letter.jpg", ROOT / "samples" / "newspaper.png"]


@pytest.mark.proof
def test_a_killed_run_is_finished_by_the_next(environment: dict[str, str]) -> None:
    """R6, R10, R94, R96: each page has one revision 1 and one revision 2, attempts have no gaps, no process is left."""
    environment |= {"SCRIBE_LEASE_SECONDS": "3", "SCRIBE_MAX_ATTEMPTS": "30"}
    moments = seeded("kill_run")
    started = time.monotonic()
    assert scribe(environment, "run", *SAMPLES).returncode == 0
    whole = time.monotonic() - started
    in_middle = 0
    url = scribe(environment, "db", "url").stdout.strip()
    for round_number in range(size_of("kill_run")):
        moment = moments.uniform(0, whole)
        killed = subprocess.Popen(
            [SCRIBE, "run", *SAMPLES, "--again"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(moment)
        workers = psutil.Process(killed.pid).children(recursive=True) if killed.poll() is None else []
        killed.kill()
        killed.wait()
        pages = scribe_json(environment, "run", *SAMPLES)
        in_middle += len(scribe_json(environment, "batch", "list")) == in_middle + 2
        told = f"round {round_number}, killed after {moment:.2f} s"
        assert [page["status"] for page in pages] == ["completed", "completed"], told
        assert [page["revision"] for page in pages] == [2, 2], told
        # the server that this home's first command starts is everybody's
        assert [process for process in living(workers) if process.name() != "postgres"] == [], told
        assert broken_invariants(url) == {}, told
        assert list((Path(environment["SCRIBE_HOME"]) / "blobs").glob(".scribe-upload-*")) == [], told
        assert unowned_objects(environment, url) == [], told
        assert unfinished_runs(environment) == [], told
    tell(f"kill_run: {size_of('kill_run')} kills, {in_middle} of them after the batch was made")


def unowned_objects(environment: dict[str, str], url: str) -> list[str]:
    """Return the stored objects that no image refers to."""
    engine = create_engine(sqlalchemy_url(url))
    with engine.connect() as connection:
        owned = set(connection.scalars(text("SELECT object_key FROM item_images")))
    engine.dispose()
    return [path.name for path in (Path(environment["SCRIBE_HOME"]) / "blobs").iterdir() if path.name not in owned]


def unfinished_runs(environment: dict[str, str]) -> list[str]:
    """Return the Dagster runs that are not over."""
    with DagsterInstance.from_config(str(Path(environment["SCRIBE_HOME"]) / "dagster")) as instance:
        return [run.run_id for run in instance.get_runs() if not run.is_finished]


def test_an_interrupt_is_no_failure(environment: dict[str, str]) -> None:
    """R86: Ctrl-C says how to go on, gives back what was held, and the next run need not wait for a lease."""
    process = subprocess.Popen(
        [SCRIBE, "run", SAMPLES[0]], env=environment, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 600
    while process.poll() is None and time.monotonic() < deadline:
        shown = scribe(environment, "batch", "list", "--json").stdout
        batches = json.loads(shown) if shown else []
        if batches and scribe_json(environment, "batch", "show", batches[0]["id"])[0]["item_image_id"]:
            break
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 130, errors
    assert "interrupted" in errors
    assert "Traceback" not in errors
    again = scribe(environment, "run", SAMPLES[0], "--json")
    assert json.loads(again.stdout)[0]["status"] == "completed"
    assert "held by a worker" not in again.stderr
