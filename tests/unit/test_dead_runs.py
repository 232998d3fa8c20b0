"""Runs whose process is gone, told by the tags that they carry."""

import os
import subprocess
import sys
from collections.abc import Iterator

import dagster as dg
import psutil
import pytest

from resources import process_tags, report_dead_runs
from resources.runs import _is_dead, _started

HOST, BOOT, PID, STARTED = "scribe/host", "scribe/boot_id", "scribe/pid", "scribe/pid_started"


def tags_of(process: subprocess.Popen[bytes]) -> dict[str, str]:
    return process_tags() | {PID: str(process.pid), STARTED: f"{_started(psutil.Process(process.pid)):.2f}"}


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that waits until its input ends."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    yield process
    process.kill()
    process.wait()
    assert process.stdin is not None
    process.stdin.close()


def kill(child: subprocess.Popen[bytes]) -> dict[str, str]:
    """End a process and return the tags of a run that lived in it."""
    tags = tags_of(child)
    child.kill()
    child.wait()
    return tags


def test_the_tags_are_text_and_name_this_process() -> None:
    tags = process_tags()
    assert set(tags) == {HOST, BOOT, PID, STARTED} and tags[PID] == str(os.getpid())
    assert all(isinstance(value, str) and value for value in tags.values())


@pytest.mark.parametrize(
    ("tags", "dead"),
    [
        pytest.param({}, False, id="this process"),
        pytest.param({STARTED: "1.00"}, True, id="the pid was given again"),
        pytest.param({BOOT: "before"}, True, id="this machine was started again"),
        pytest.param({HOST: "elsewhere"}, False, id="another machine"),
        pytest.param({HOST: "elsewhere", BOOT: "theirs", PID: "999999999", STARTED: "1.00"}, False, id="all of another machine"),
    ],
)
def test_a_run_is_dead_when_its_process_is_not_the_one_it_began_in(tags: dict[str, str], dead: bool) -> None:
    assert _is_dead(process_tags() | tags) is dead


@pytest.mark.parametrize("tags", [{}, {"scribe/batch_id": "x"}])
def test_a_run_without_our_tags_is_left_alone(tags: dict[str, str]) -> None:
    assert _is_dead(tags) is False


def test_a_run_dies_with_its_process(child: subprocess.Popen[bytes]) -> None:
    assert _is_dead(tags_of(child)) is False
    assert _is_dead(kill(child)) is True


def test_a_zombie_works_on_nothing(child: subprocess.Popen[bytes]) -> None:
    tags = tags_of(child)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert psutil.Process(child.pid).status() == psutil.STATUS_ZOMBIE
    assert _is_dead(tags) is True


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the boot time is read from /proc")
def test_setting_the_clock_kills_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    from psutil import _pslinux

    tags, booted = process_tags(), _pslinux.boot_time()
    monkeypatch.setattr(_pslinux, "boot_time", lambda: booted + 3600)
    assert _is_dead(tags) is False


def test_dead_runs_are_reported_failed_and_others_left_alone(child: subprocess.Popen[bytes]) -> None:
    gone, alive, elsewhere = kill(child), process_tags(), process_tags() | {HOST: "elsewhere", PID: "1"}
    status = dg.DagsterRunStatus
    wanted = [
        ("gone", status.STARTED, gone, status.FAILURE),
        ("gone while canceled", status.CANCELING, gone, status.FAILURE),
        ("gone, over", status.SUCCESS, gone, status.SUCCESS),
        ("gone, not begun", status.NOT_STARTED, gone, status.FAILURE),
        ("alive", status.STARTED, alive, status.STARTED),
        ("elsewhere", status.STARTED, elsewhere, status.STARTED),
        ("untagged", status.STARTED, {}, status.STARTED),
        ("not begun by anybody", status.NOT_STARTED, {}, status.NOT_STARTED),
    ]
    with dg.DagsterInstance.ephemeral() as instance:
        runs = {name: instance.add_run(dg.DagsterRun(name, status=before, tags=tags)) for name, before, tags, _ in wanted}
        reported = report_dead_runs(instance)
        assert set(reported) == {runs[name].run_id for name in ("gone", "gone while canceled", "gone, not begun")}
        assert len(reported) == 3
        assert {run.job_name: run.status for run in instance.get_runs()} == {name: after for name, _, _, after in wanted}
        (record,) = instance.get_run_records(dg.RunsFilter(run_ids=[runs["gone"].run_id]))
        assert record.end_time is not None
        assert report_dead_runs(instance) == []
