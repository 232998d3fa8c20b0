"""Whole days of the outcome record: scans and digests every five minutes, many failures at once, a mail server that goes away."""

from collections import Counter
from dataclasses import dataclass, field
from uuid import UUID

import pytest

from tests.endings import FLYERS, JOBS, Endings

TICK, HOUR = 300, 3600


@dataclass
class Day:
    """What the schedules do, tick by tick, and what came of it: the digests with the second at which each was sent."""

    endings: Endings
    second: int = 0
    recorded: Counter[str] = field(default_factory=Counter)
    digests: list[tuple[int, int]] = field(default_factory=list)

    def ticks(self, number: int) -> None:
        """Scan and digest so many times; each starts five minutes after the one before."""
        for _ in range(number):
            self.recorded += self.endings.scan().recorded
            covered = self.endings.digest().covered.get(FLYERS.name)
            if covered:
                self.digests.append((self.second, covered))
            self.endings.pass_time(TICK)
            self.second += TICK


def told_once(endings: Endings, alone: int, together: int) -> None:
    """So many failures were told of alone and so many in digests, none twice, and nothing waits."""
    assert endings.notices() == {"sent": alone, "digest": together}
    ids = [job_id for job_id, _ in endings.told()]
    assert len(ids) == len(set(ids)) == alone
    assert sum(endings.summaries()) == together
    untold = "SELECT count(*) FROM flyer_tagging_jobs WHERE failure_notified_at IS NULL"
    assert endings.house.value(untold) == 0


def test_130_failures_at_once(endings: Endings) -> None:
    """R168, R174, R185, R186, R187, I13: six ticks record them all: twelve mails and one digest of 118, and nothing twice."""
    endings.flyers(130)
    sizes = [sum(endings.scan().recorded.values()) for _ in range(6)]
    assert sizes == [25, 25, 25, 25, 25, 5]
    assert endings.digest().covered == {FLYERS.name: 118}
    for _ in range(3):
        endings.scan()
        endings.digest()
    assert len(endings.mails) == 13
    assert endings.summaries() == [118]
    told_once(endings, 12, 118)


def test_130_failures_in_a_day(endings: Endings) -> None:
    """R187, I13: with both schedules running digests come an hour apart or more, and together cover the 118."""
    day = Day(endings)
    endings.flyers(130)
    day.ticks(30)
    assert day.recorded == {"pipeline_error": 130}
    assert [second for second, _ in day.digests] == [0, HOUR]
    assert [covered for _, covered in day.digests] == endings.summaries() == [13, 105]
    told_once(endings, 12, 118)


@pytest.mark.parametrize("before", [0, 1, 2, 5, 12, 13])
def test_a_mail_server_that_is_away_for_an_hour(endings: Endings, before: int) -> None:
    """R168, R184, R187, R193, I13: whenever that hour begins, who is told of what stays the same: only the times are others."""
    day = Day(endings)
    endings.flyers(130)
    day.ticks(before)
    endings.sink.stop()
    mails = len(endings.mails)
    day.ticks(12)
    assert len(endings.mails) == mails
    endings.sink.start()
    day.ticks(30)
    assert day.recorded == {"pipeline_error": 130}
    assert all(later - earlier >= HOUR for (earlier, _), (later, _) in zip(day.digests, day.digests[1:], strict=False))
    assert [covered for _, covered in day.digests] == endings.summaries()
    told_once(endings, 12, 118)


@pytest.mark.parametrize("which", ["scan", "digest"])
def test_a_mail_server_that_leaves_between_scan_and_digest(endings: Endings, which: str) -> None:
    """R184, R193: the same if it leaves within a tick, after the scan or before the next one."""
    endings.flyers(40)
    endings.scan()
    if which == "scan":
        endings.digest()
    endings.sink.stop()
    day = Day(endings)
    day.ticks(12)
    endings.sink.start()
    day.ticks(14)
    told_once(endings, 12, 28)
    assert endings.summaries() == ([28] if which == "digest" else [13, 15])


def test_failures_all_day_long(endings: Endings) -> None:
    """R168, R185, R187, I13: three failures a tick for five hours, refusals among the mails: each is told of once."""
    day = Day(endings)
    for tick in range(60):
        endings.flyers(3, ago=150)
        if tick % 7 == 3:
            endings.sink.order(451)
        day.ticks(1)
    day.ticks(13)
    assert day.recorded == {"pipeline_error": 180}
    alone = len(endings.told())
    told_once(endings, alone, 180 - alone)
    assert 48 <= alone <= 60
    assert 5 <= len(day.digests) <= 6


def test_both_families_in_a_day(endings: Endings) -> None:
    """R168, R174, R185: each family has its own 25 rows a tick, its own twelve mails and its own digest."""
    ids: list[UUID] = [endings.failed_job(ago=1) for _ in range(30)]
    endings.pass_time(TICK)
    endings.flyers(30)
    first = endings.scan()
    assert first.recorded == {"pipeline_error": 50}
    Day(endings).ticks(14)
    for family in (FLYERS, JOBS):
        assert endings.notices(family) == {"sent": 12, "digest": 18}
        assert sum(endings.summaries(family)) == 18
    assert {job_id for job_id, _ in endings.told(JOBS)} == {str(job_id) for job_id in ids[:12]}
