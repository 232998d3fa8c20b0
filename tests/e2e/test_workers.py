"""Real worker processes with the real recogniser on a real page: killed, overtaken by a person, canceled."""

import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from scribe_pipeline.engines import LineShape
from scribe_pipeline.metrics import read_ground_truth
from tests.commands import SCRIBE, scribe, scribe_json
from tests.conftest import ROOT
from tests.houses import House
from tests.proofs import tell

NEWSPAPER = ROOT / "samples" / "newspaper.png"
WAIT_SECONDS = 600


def shapes(times: int) -> list[LineShape]:
    """The lines of the sample page, so many times over, so that reading it takes a while."""
    lines = []
    for line in read_ground_truth(NEWSPAPER.with_suffix(".xml")):
        polygon = tuple((round(x), round(y)) for x, y in line.polygon)
        left, right, bottom = min(x for x, _ in polygon), max(x for x, _ in polygon), max(y for _, y in polygon)
        lines.append(LineShape(((left, bottom), (right, bottom)), polygon))
    return lines * times


@pytest.fixture
def environment(house: House, database_url: str) -> dict[str, str]:
    """Commands on the house, with short leases and one page at a time."""
    return house.environment(database_url) | {"SCRIBE_LEASE_SECONDS": "4", "SCRIBE_WORKERS": "1"}


@contextmanager
def worker(environment: dict[str, str], log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A `scribe worker` that writes to `log`; it is killed at the end if it still lives."""
    with log.open("ab") as out:
        process = subprocess.Popen([SCRIBE, "worker", *options], env=environment, stdout=out, stderr=out)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def wait_until(house: House, condition: str, log: Path) -> None:
    """Wait until an SQL condition holds."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not house.value(f"SELECT {condition}"):
        assert time.monotonic() < deadline, f"{condition}: {log.read_text()}"
        time.sleep(0.05)


IN_THE_MIDDLE = "EXISTS (SELECT FROM transcription_jobs WHERE status = 'running' AND completed_segments > 0)"


def test_a_second_worker_finishes_what_a_killed_one_began(house: House, environment: dict[str, str], tmp_path: Path) -> None:
    """R6, R29, R33, R37, R41: killed in the middle of a page, it is overtaken; one revision more, and no token is told."""
    log = tmp_path / "log"
    image = house.page(*shapes(6), scan=NEWSPAPER)
    job = house.job(image)
    with worker(environment, log) as first:
        wait_until(house, IN_THE_MIDDLE, log)
        first.kill()
        first.wait()
    with worker(environment, log) as second:
        wait_until(house, "EXISTS (SELECT FROM transcription_jobs WHERE status = 'completed')", log)
        second.send_signal(signal.SIGTERM)
        assert second.wait(120) == 0
    shown = scribe(environment, "job", "show", str(job)).stdout
    attempts = [line.split()[:2] for line in shown.split("attempt ")[1].splitlines()[1:3]]
    assert attempts == [["1", "lease_expired"], ["2", "completed"]]
    document = scribe_json(environment, "job", "show", str(job))
    assert (document["verdict"], document["page_revision"]) == ("match", 2)
    assert house.rows("SELECT revision, author_kind FROM annotation_page_revisions ORDER BY 1") == [(1, "ocr"), (2, "ocr")]
    told = shown + str(document) + log.read_text()
    assert "276 of 276 lines read" in told
    tokens = [row.lease_token for row in house.rows("SELECT lease_token FROM transcription_job_attempts")]
    assert len(tokens) == 2 and not any(token in told for token in tokens)


def test_a_person_who_saves_meanwhile_wins(house: House, environment: dict[str, str], tmp_path: Path) -> None:
    """R98: a save made while a real worker reads the page survives; the job fails as the page has changed."""
    log = tmp_path / "log"
    image = house.page(*shapes(4), scan=NEWSPAPER)
    job = house.job(image)
    with worker(environment, log, "--once"):
        wait_until(house, IN_THE_MIDDLE, log)
        assert house.save(image.id, 1, "by hand") == 2
        wait_until(house, "NOT EXISTS (SELECT FROM transcription_jobs WHERE status = 'running')", log)
    document = scribe_json(environment, "job", "show", str(job))
    assert (document["job"]["status"], document["job"]["error_category"]) == ("failed", "page_changed")
    assert house.rows("SELECT revision, author_kind FROM annotation_page_revisions ORDER BY 1") == [(1, "ocr"), (2, "human")]


def test_cancel_of_a_busy_batch(house: House, environment: dict[str, str], tmp_path: Path) -> None:
    """R23-R27, R119, R120: with four workers busy in a batch of forty, nothing of it appears once the cancel has returned."""
    log = tmp_path / "log"
    batch, _ = house.ingested(40, incomplete=2, scan=NEWSPAPER, shapes=shapes(4))
    with ExitStack() as stack:
        workers = [stack.enter_context(worker(environment, log)) for _ in range(4)]
        running = "SELECT count(*) FROM transcription_jobs WHERE status = 'running' AND completed_segments > 0"
        wait_until(house, f"({running}) = 4", log)
        started = time.monotonic()
        assert scribe(environment, "batch", "cancel", str(batch)).stdout == "canceled\n"
        took = time.monotonic() - started
        after = written(house)
        other = house.job(house.page(*shapes(1), scan=NEWSPAPER))
        wait_until(house, f"(SELECT status = 'completed' FROM transcription_jobs WHERE id = '{other}')", log)
        for process in workers:
            process.send_signal(signal.SIGTERM)
        assert [process.wait(120) for process in workers] == [0] * 4
    assert written(house) == after
    assert house.value("SELECT count(*) FROM item_images") == 41
    tell(f"cancel of a batch of 40 with 4 workers busy: {took:.2f} s, the command's start included")


def written(house: House) -> list[str]:
    """All that a worker could have written of the batch: progress, attempts, revisions, events."""
    of_batch = "SELECT id FROM transcription_jobs WHERE batch_id IS NOT NULL"
    return [
        str(house.rows(f"SELECT t::text FROM {table} t WHERE {column} IN ({of_batch}) ORDER BY 1"))
        for table, column in (
            ("transcription_jobs", "id"),
            ("transcription_job_attempts", "job_id"),
            ("annotation_page_revisions", "job_id"),
            ("event_outbox", "job_id"),
        )
    ]


def test_a_stopped_worker_gives_back_what_it_holds(house: House, environment: dict[str, str], tmp_path: Path) -> None:
    """R37: SIGTERM in the middle of a page closes the attempt as retryable, due in five seconds, and the worker ends with 0."""
    log = tmp_path / "log"
    house.job(house.page(*shapes(6), scan=NEWSPAPER))
    with worker(environment, log) as process:
        wait_until(house, IN_THE_MIDDLE, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0
    (row,) = house.rows(
        """SELECT j.status, a.outcome, extract(epoch FROM j.retry_after - a.finished_at) AS seconds
           FROM transcription_jobs j JOIN transcription_job_attempts a ON a.job_id = j.id"""
    )
    assert (row.status, row.outcome) == ("pending", "retryable_failed")
    assert abs(float(row.seconds) - 5) < 1
    assert log.read_text() == "1.png: the attempt failed (interrupted)\nattempts: 1\n"
