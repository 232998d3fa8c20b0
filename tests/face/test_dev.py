"""`scribe dev` with the real daemon: what another shell ingests is picked up and becomes a draft."""

import os
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from dagster import DagsterInstance, DagsterRun

from tests.commands import SCRIBE, scribe, scribe_json
from tests.conftest import ROOT
from tests.proofs import wait_until

HANG_SECONDS = 1200


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def test_what_is_asked_for_is_picked_up(environment: dict[str, str], tmp_path: Path) -> None:
    """R85, R86, R37: the sensors start runs for a batch that was ingested and for a job that was asked for; both are green."""
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "letter.jpg").write_bytes((ROOT / "samples" / "letter.jpg").read_bytes())
    port = free_port()
    log = (tmp_path / "log").open("w")
    dev = subprocess.Popen([SCRIBE, "dev", "--port", str(port)], env=environment, stdout=log, stderr=log, start_new_session=True)
    try:
        started = time.monotonic()
        batch = scribe(environment, "ingest", inbox).stdout.strip()
        pages = []
        while not pages or pages[0]["status"] not in ("completed", "failed"):
            assert time.monotonic() - started < HANG_SECONDS, (tmp_path / "log").read_text()[-4000:]
            assert dev.poll() is None, (tmp_path / "log").read_text()[-4000:]
            time.sleep(1)
            pages = scribe_json(environment, "batch", "show", batch)
        print(f"from `scribe dev` and `scribe ingest` to the draft: {time.monotonic() - started:.0f} s")  # noqa: T201
        assert (pages[0]["status"], pages[0]["revision"]) == ("completed", 2)
        again = scribe(environment, "job", "create", pages[0]["item_image_id"]).stdout.strip()
        while scribe_json(environment, "job", "show", again)["job"]["status"] in ("pending", "running"):
            assert time.monotonic() - started < HANG_SECONDS, (tmp_path / "log").read_text()[-4000:]
            time.sleep(1)
        assert scribe_json(environment, "job", "show", again)["verdict"] == "match"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/server_info", timeout=30) as answer:
            assert answer.status == 200
        with DagsterInstance.from_config(str(Path(environment["SCRIBE_HOME"]) / "dagster")) as instance:

            def asked_for() -> list[DagsterRun]:
                """The runs for the batch and the job; by the clock, and once a job has ended two minutes ago, others come too."""
                names = ("drain_transcription_queue", "process_ingest_batch")
                return [run for run in instance.get_runs() if run.job_name in names]

            wait_until(lambda: all(run.is_finished for run in asked_for()), "the end of the runs")
            assert [(run.job_name, run.status.value, run.tags.get("scribe/batch_id")) for run in asked_for()] == [
                ("drain_transcription_queue", "SUCCESS", None), ("process_ingest_batch", "SUCCESS", batch)
            ]  # fmt: skip
    finally:
        os.kill(dev.pid, signal.SIGTERM)
        try:
            dev.wait(300)
        finally:
            if dev.poll() is None:
                os.killpg(dev.pid, signal.SIGKILL)
            log.close()
    assert dev.returncode == 0, (tmp_path / "log").read_text()[-4000:]
