"""Worker processes: one that crashes takes nobody with it, and none outlives its parent."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import wait
from pathlib import Path

import psutil
import pytest

from scribe_pipeline.engines import EnginePool, ProcessExpired
from scribe_pipeline.engines.pool import report_progress
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.jobs import drain
from tests.proofs import living

PARENT = """
import sys, time
from scribe_pipeline.engines import EnginePool
from tests.faults.test_pool import spin
if __name__ == "__main__":
    pool = EnginePool(2)
    tickets = [pool.submit(spin), pool.submit(spin)]
    while not all(pool.progress(ticket)[0] for ticket in tickets):
        time.sleep(0.05)
    print("busy", flush=True)
    time.sleep(600)
"""


def spin() -> None:
    """Keep the processor busy, as an engine does, reading no pipe."""
    number = 0
    while True:
        number += 1
        report_progress(os.getpid(), 0)


def crash() -> None:
    """Die as a C library does."""
    os.kill(os.getpid(), signal.SIGSEGV)


def count(lines: int) -> int:
    """Report lines and give their number."""
    report_progress(lines, 1)
    return lines


def refuse() -> None:
    """Fail with an error of ours."""
    raise ScribeError(Category.DAMAGED, "it is damaged")


def test_a_crash_fails_one_task() -> None:
    """R86: a worker process that dies loses its own task; the pool goes on."""
    pool = EnginePool(2)
    try:
        tickets = [pool.submit(crash), pool.submit(count, 3)]
        with pytest.raises(ProcessExpired):
            tickets[0].future.result(60)
        assert tickets[1].future.result(60) == 3
        for ticket in tickets:
            pool.release(ticket)
        assert pool.submit(count, 4).future.result(60) == 4
    finally:
        pool.stop()


def read_slowly(log: str) -> None:
    """A page of many lines, each of which leaves a mark."""
    for line in range(1, 400):
        with Path(log).open("a") as file:
            file.write("line\n")
        report_progress(line, 0)
        time.sleep(0.02)


class Overtaken:
    """A unit whose job is canceled once two of its lines are read."""

    task = staticmethod(read_slowly)

    def __init__(self, log: Path) -> None:
        self.arguments = (str(log),)

    def renew(self) -> bool:
        return True

    def progress(self, succeeded: int, failed: int) -> None:
        if succeeded >= 2:
            raise ScribeError(Category.LEASE_LOST, "the job is no longer held by this worker")

    def finish(self, result: object) -> None:
        raise AssertionError("nobody wants it")

    fail = finish  # type: ignore[assignment]


def test_a_canceled_page_is_not_read_to_its_end(tmp_path: Path) -> None:
    """R117: as soon as a write says that the job is canceled, its engine stops between two lines."""
    log = tmp_path / "lines"
    units = [Overtaken(log)]

    class Source:
        def claim(self, limit: int) -> list[Overtaken]:
            return [units.pop()] if units else []

    pool = EnginePool(1)
    try:
        drain([Source()], pool, 60, 60)
        read = len(log.read_text())
        time.sleep(0.5)
        assert len(log.read_text()) <= read + len("line\n"), "it has gone on"
    finally:
        pool.stop()
    assert read < 399 * len("line\n")


def test_progress_and_errors_cross_the_border() -> None:
    """R95: line counts of a task are seen while it runs, and its errors keep their category."""
    pool = EnginePool(1)
    try:
        ticket = pool.submit(count, 5)
        ticket.future.result(60)
        assert pool.progress(ticket) == (5, 1)
        pool.release(ticket)
        ticket = pool.submit(refuse)
        wait([ticket.future], 60)
        with pytest.raises(ScribeError) as caught:
            ticket.result()
        assert caught.value.category is Category.DAMAGED
        assert caught.value.__cause__ is None, "a traceback hangs on it"
        assert pool.progress(ticket) == (0, 0)
        assert pool.idle == 0
    finally:
        pool.stop()


def test_workers_die_with_their_parent() -> None:
    """R86: after a SIGKILL of the parent no worker process is left, busy or not."""
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    assert parent.stdout.readline() == "busy\n"
    children = psutil.Process(parent.pid).children(recursive=True)
    assert len(children) >= 2
    parent.kill()
    parent.wait()
    assert living(children) == []
    parent.stdout.close()


def test_stop_ends_busy_workers() -> None:
    """R86: stopping the pool does not wait for an engine."""
    pool = EnginePool(1)
    ticket = pool.submit(spin)
    while not pool.progress(ticket)[0]:
        time.sleep(0.05)
    worker = psutil.Process(pool.progress(ticket)[0])
    pool.stop()
    worker.wait(timeout=60)


def test_a_task_that_is_let_go_stops_by_itself() -> None:
    """R117: a task whose result nobody wants ends at its next line, and its process goes on to the next task."""
    pool = EnginePool(1)
    try:
        ticket = pool.submit(spin)
        while not pool.progress(ticket)[0]:
            time.sleep(0.05)
        pool.release(ticket)
        with pytest.raises(ScribeError) as caught:
            ticket.future.result(60)
        assert caught.value.category is Category.CANCELED
        assert pool.submit(os.getpid).future.result(60) == pool.progress(ticket)[0]
    finally:
        pool.stop()


def test_a_place_that_is_used_again_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    """R95: a task does not begin with the counts of another."""
    monkeypatch.setattr("scribe_pipeline.engines.pool._SLOTS", 1)
    pool = EnginePool(1)
    try:
        first = pool.submit(count, 5)
        first.future.result(60)
        pool.release(first)
        second = pool.submit(refuse)
        assert isinstance(second.future.exception(60), ScribeError)
        assert pool.progress(second) == (0, 0)
    finally:
        pool.stop()
