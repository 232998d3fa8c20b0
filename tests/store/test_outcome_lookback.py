"""Failures that nobody is told of, or not any more: those of long ago, and those for which nobody is named."""

from collections.abc import Mapping
from dataclasses import replace

import pytest
from sqlalchemy import exc

from scribe_pipeline.outcomes import Family, Policy, Scan
from tests.endings import FLYERS, JOBS, SHAPES, Endings
from tests.houses import StoppedError

DAY = 86400
OLDER = "UPDATE {} SET updated_at = clock_timestamp() - make_interval(secs => :age) WHERE id = :id"
FAMILIES = pytest.mark.parametrize("family", [FLYERS, JOBS], ids=lambda family: family.name)
UNSET = "flyer_tagging_jobs: nobody is told of failures: set PRESERVE_FAILURE_NOTIFY_TO (or ALERT_EMAIL) and SCRIBE_SMTP_URL"


@FAMILIES
@pytest.mark.parametrize("hours", [24, 1.5])
def test_failures_of_long_ago(endings: Endings, family: Family, hours: float) -> None:
    """R197, R207: a failure is told of for so many hours after it, 24 or what is set; an older one is recorded without a word."""
    endings.policy = replace(endings.policy, lookback_hours=hours)
    within, beyond = endings.failed(family), endings.failed(family)
    endings.stop_clock()
    for job_id, age in ((within, hours * 3600), (beyond, hours * 3600 + 0.001)):
        endings.unguarded(OLDER.format(family.name), id=job_id, age=age)
    assert endings.scan().recorded == {"pipeline_error": 2}
    assert (endings.notice(within, family), endings.notice(beyond, family)) == (("sent", 1), ("backfill", 0))
    assert endings.told(family) == [(str(within), 1)]
    assert endings.digest().covered == {}


def test_successes_of_long_ago(endings: Endings) -> None:
    """R197, R196: history is a matter of failures; of what is no failure there is nothing to be told at any time."""
    ids = [endings.flyer(shape, ago=30 * DAY) for shape in SHAPES]
    endings.scan()
    notices = dict(zip(SHAPES, [endings.notice(job_id)[0] for job_id in ids], strict=True))
    assert notices == dict.fromkeys(SHAPES, "backfill") | {"success": "none", "cancelled": "none"}


@FAMILIES
def test_each_family_is_scanned_from_its_own_first_time_on(endings: Endings, family: Family) -> None:
    """A9: what had ended before the family's own first scan is history; what ended after it is not, in the other family too."""
    endings.house.execute("DELETE FROM outcome_activations WHERE family = :family", family=family.name)
    other = JOBS if family is FLYERS else FLYERS
    mine, others = endings.failed(family), endings.failed(other)
    endings.scan()
    assert (endings.notice(mine, family), endings.notice(others, other)) == (("backfill", 0), ("sent", 1))
    new = endings.failed(family, ago=0)
    endings.pass_time(121)
    endings.scan()
    assert endings.notice(new, family) == ("sent", 1)


@FAMILIES
def test_a_notice_that_waits_too_long(endings: Endings, family: Family) -> None:
    """R207, R196: what could not be sent for 24 hours is failed, and never sent, however well the server does then."""
    endings.sink.order(451, times=2)
    job_id = endings.failed(family)
    endings.stop_clock()
    endings.unguarded(OLDER.format(family.name), id=job_id, age=300)
    endings.scan()
    endings.sink.stop()
    endings.pass_time(DAY - 300)
    endings.scan()
    assert endings.notice(job_id, family) == ("pending", 1), "just 24 hours"
    endings.sink.start()
    endings.pass_time(0.001)
    assert endings.scan().notices == {"failed": 1}
    assert endings.notice(job_id, family) == ("failed", 1)
    assert endings.scan() == Scan() and endings.mails == []


def test_a_lost_claim_that_waits_too_long(endings: Endings, monkeypatch: pytest.MonkeyPatch) -> None:
    """R207: the same for one whose sender was never heard of again."""
    monkeypatch.setattr(endings.mailer, "send", _stopped)
    job_id = endings.flyer()
    with pytest.raises(StoppedError):
        endings.scan()
    endings.pass_time(DAY)
    assert endings.scan().notices == {"failed": 1}
    assert endings.notice(job_id) == ("failed", 1)


def _stopped(_mail: object) -> None:
    raise StoppedError


def test_nobody_is_named(endings: Endings) -> None:
    """R198, R196: five failures, one word of it; nothing is sent, then or when somebody is named, and nothing waits."""
    nobody = replace(endings.policy, recipient=None)
    ids = [endings.flyer() for _ in range(5)]
    done = endings.scan(nobody)
    assert (list(done.problems), done.notices) == ([UNSET], {"unconfigured": 5})
    assert endings.scan(nobody) == endings.scan() == Scan()
    assert endings.digest(nobody).covered == endings.digest().covered == {}
    endings.pass_time(3600)
    assert endings.scan() == Scan()
    assert {endings.notice(job_id) for job_id in ids} == {("unconfigured", 0)}
    assert endings.mails == [] and endings.sink.sessions == 0


def test_nobody_is_named_any_more(endings: Endings) -> None:
    """R198, R196: a notice that was to be sent again is unconfigured as soon as there is nobody to send it to."""
    endings.sink.order(451)
    job_id = endings.flyer()
    endings.scan()
    assert endings.scan(replace(endings.policy, recipient=None)).notices == {"unconfigured": 1}
    assert endings.notice(job_id) == ("unconfigured", 1)
    assert endings.scan() == Scan() and endings.mails == []


ORDER: Mapping[str, tuple[str, Mapping[str, object], float]] = {
    "none": ("success", {"recipient": None, "max_per_hour": 0}, 30 * DAY),
    "backfill": ("fidelity", {"recipient": None, "max_per_hour": 0}, 30 * DAY),
    "unconfigured": ("fidelity", {"recipient": None, "max_per_hour": 0}, 300),
    "digest": ("fidelity", {"max_per_hour": 0}, 300),
}


@pytest.mark.parametrize("notice", ORDER)
def test_which_reason_goes_first(endings: Endings, notice: str) -> None:
    """R196: no failure, then too old, then nobody named, then no room: where several hold the first is told."""
    shape, changes, ago = ORDER[notice]
    policy: Policy = replace(endings.policy, **changes)  # type: ignore[arg-type]
    job_id = endings.flyer(shape, ago=ago)
    endings.scan(policy)
    assert endings.notice(job_id) == (notice, 0)


def test_there_are_eight_states(endings: Endings, monkeypatch: pytest.MonkeyPatch) -> None:
    """R196: each is reached, by rows that are there side by side; a ninth is refused."""
    endings.sink.order(550, times=3)
    endings.flyer()
    for _ in range(3):
        endings.scan()
    endings.flyer("success")
    endings.flyer(ago=2 * DAY)
    endings.flyer()
    endings.scan()
    endings.flyer()
    endings.scan(replace(endings.policy, max_per_hour=0))
    endings.flyer()
    endings.scan(replace(endings.policy, recipient=None))
    endings.sink.order(451)
    endings.flyer()
    endings.scan()
    monkeypatch.setattr(endings.mailer, "send", _stopped)
    endings.flyer()
    endings.sink.stop()
    with pytest.raises(StoppedError):
        endings.scan()
    states = ("none", "backfill", "sending", "pending", "sent", "failed", "digest", "unconfigured")
    assert endings.notices() == dict.fromkeys(states, 1)
    ninth = "UPDATE flyer_tagging_jobs SET outcome_facts = jsonb_set(outcome_facts, '{notice}', '\"later\"')"
    with pytest.raises(exc.IntegrityError, match="flyer_tagging_jobs_outcome"):
        endings.unguarded(ninth)
