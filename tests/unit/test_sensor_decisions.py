"""When sensors ask for a run: for a batch that is due, for a job whose outcome is to be recorded."""

from uuid import UUID

import pytest

from scribe_pipeline.ingest import Batch
from scribe_pipeline.outcomes import Waiting
from sensors.ingest_batches import Decision, PastRun, decide, run_key
from sensors.terminal_jobs import scan_key

ID = UUID("01900000-0000-7000-8000-0000000000aa")
BATCH = Batch(id=ID, workspace="default", status="running", dispatch_generation=3, context_snapshot="{}")
KEY, OLDER_KEY, OTHER_KEY = f"batch:{ID}:3", f"batch:{ID}:2", f"batch:{UUID(int=1)}:3"
NOW, BACKOFF = 1_000_000.0, 60.0
LONG_AGO, JUST_NOW = NOW - 3600, NOW - 1


def test_the_run_key_names_batch_and_generation() -> None:
    assert run_key(BATCH.id, BATCH.dispatch_generation) == "batch:01900000-0000-7000-8000-0000000000aa:3"


@pytest.mark.parametrize(
    ("runs", "decision"),
    [
        pytest.param([], Decision.REQUEST, id="no run yet"),
        pytest.param([PastRun(OLDER_KEY, JUST_NOW)], Decision.REQUEST, id="the run of the generation before asked for this one"),
        pytest.param([PastRun(OTHER_KEY, JUST_NOW)], Decision.REQUEST, id="another batch's key"),
        pytest.param([PastRun(None, JUST_NOW)], Decision.REQUEST, id="a `scribe run` that ended spends no key"),
        pytest.param([PastRun(None, LONG_AGO), PastRun(None, JUST_NOW)], Decision.REQUEST, id="nor do two"),
        pytest.param([PastRun(KEY, None)], Decision.WAIT, id="its run goes on"),
        pytest.param([PastRun(None, None)], Decision.WAIT, id="a `scribe run` goes on"),
        pytest.param([PastRun(OLDER_KEY, None)], Decision.WAIT, id="the run before goes on"),
        pytest.param([PastRun(KEY, LONG_AGO), PastRun(None, None)], Decision.WAIT, id="its run failed, a `scribe run` took over"),
        pytest.param([PastRun(KEY, JUST_NOW)], Decision.WAIT, id="its run failed just now"),
        pytest.param([PastRun(KEY, NOW - BACKOFF + 0.1)], Decision.WAIT, id="the backoff is nearly over"),
        pytest.param([PastRun(KEY, NOW + 5)], Decision.WAIT, id="a clock that is ahead"),
        pytest.param([PastRun(KEY, NOW - BACKOFF)], Decision.RAISE, id="the backoff is over"),
        pytest.param([PastRun(KEY, LONG_AGO)], Decision.RAISE, id="its run failed long ago"),
        pytest.param([PastRun(KEY, LONG_AGO), PastRun(KEY, JUST_NOW)], Decision.WAIT, id="executed twice: the later end counts"),
        pytest.param([PastRun(KEY, JUST_NOW), PastRun(KEY, LONG_AGO)], Decision.WAIT, id="in whatever order they are listed"),
        pytest.param([PastRun(KEY, LONG_AGO), PastRun(None, JUST_NOW)], Decision.RAISE, id="a `scribe run` delays no fresh key"),
        pytest.param([PastRun(KEY, LONG_AGO), PastRun(OLDER_KEY, JUST_NOW)], Decision.RAISE, id="nor does an older key"),
    ],
)
def test_a_due_batch_gets_a_run_when_nobody_works_on_it(runs: list[PastRun], decision: Decision) -> None:
    assert decide(BATCH, runs, NOW, BACKOFF) is decision


def test_without_backoff_a_spent_key_is_renewed_at_once() -> None:
    assert decide(BATCH, [PastRun(KEY, NOW)], NOW, 0) is Decision.RAISE


@pytest.mark.parametrize(
    ("waiting", "under_way", "key"),
    [
        pytest.param(None, 0, None, id="no job waits"),
        pytest.param(None, 1, None, id="no job waits, a run is under way"),
        pytest.param(Waiting(str(ID), 0.0, 2_900_000), 0, f"outcomes:{ID}:2900000", id="a job that may just be taken"),
        pytest.param(Waiting(str(ID), 9e6, 2_900_001), 0, f"outcomes:{ID}:2900001", id="another key ten minutes later"),
        pytest.param(Waiting(str(ID), 600.0, 2_900_000), 1, None, id="a run that scans is under way"),
        pytest.param(Waiting(str(ID), 600.0, 2_900_000), 2, None, id="or several are"),
    ],
)
def test_a_scan_is_asked_for_when_a_job_waits_and_nobody_scans(waiting: Waiting | None, under_way: int, key: str | None) -> None:
    """R171: the key names the job that waits longest and the ten minutes that it is, so a scan that fails at once does not spin."""
    assert scan_key(waiting, under_way) == key
