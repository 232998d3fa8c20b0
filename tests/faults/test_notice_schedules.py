"""Scans and senders of digests at the same time, statement by statement, while processes die and mails fare ill in every way."""

import multiprocessing
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, event

from scribe_pipeline.database import EmbeddedServer
from scribe_pipeline.outcomes import records, scan
from tests.conftest import fresh_database
from tests.endings import Endings
from tests.faults.noticing import Clock, Office
from tests.faults.schedule import AtRandom, Sessions
from tests.houses import House
from tests.mail_sink import MailSink
from tests.proofs import named, numbers_of, seed_of, seeded_item, tell

_PROCESSES = 2
_SESSIONS = 5
# So small that a digest of a few jobs is claimed in several.
_CHUNK = 2
# What happens in so many schedules, but for a chance that is not worth a thought.
_ENOUGH, _ENOUGH_FOR_ALL = 60, 1_000
_WANTED = (
    "scan crashed", "scan done", "scan not the leader", "waits", "digest done", "mail delivered", "mail refused", "mail unknown",
    "recorded backfill", "recorded digest", "recorded none", "recorded sending", "pending -> sending", "sending -> pending",
    "sending -> sent", "hours that are full",
)  # fmt: skip
_RARE = ("sending -> failed", "sending -> sending", "digests released")


@dataclass
class Seen:
    """What a process saw: what it counted, the points passed and those at which somebody was struck, and the first failure."""

    counted: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    struck: Counter[str] = field(default_factory=Counter)
    failure: str | None = None


@contextmanager
def _everybody_leads(_: Engine) -> Iterator[bool]:
    yield True


class Hour:
    """One database and one mail server with which schedules are played, and judged."""

    def __init__(self, url: str, folder: Path, sink: MailSink, seed: int) -> None:
        self.seen = Seen()
        self._seed = seed
        self._office = Office(url, folder, sink)
        # whoever leads the scan holds a connection for it
        self._sessions = Sessions(url, _SESSIONS, connections=2)
        self._leading = scan._leading

    def play(self, number: int) -> None:
        """Play one schedule, then let all come to rest."""
        chance = seeded_item(self._seed, number)
        scan._leading = self._leading if chance.random() < 0.3 else _everybody_leads
        self._office.start(chance)
        scripts = [[self._office.tick() for _ in range(chance.randrange(1, 3))] for _ in range(chance.randrange(2, _SESSIONS))]
        scripts.append([self._office.event() for _ in range(chance.randrange(3, 9))])
        played = self._sessions.play(scripts, AtRandom(chance))
        self._office.rest()
        complaints = [*played.errors, *self._office.ledger.complaints]
        self.seen.counted.update(statements=len(played.steps), waits=played.waits)
        self.seen.counted.update(
            f"{answer.operation.kind} {answer.value or ''}".rstrip() for answer in played.answers if answer.refusal is None
        )
        complaints += [f"{answer}" for answer in played.answers if answer.refusal is not None]
        if complaints:
            replay = f"SCRIBE_PROOF_SEED={self._seed} SCRIBE_PROOF_ONLY={number}"
            parts = [complaints, played.steps, [str(answer) for answer in played.answers]]
            self.seen.failure = "\n\n".join([f"schedule {number}; {replay} plays it again", *("\n".join(part) for part in parts)])

    def close(self) -> Seen:
        """Give up the connections and return what was seen."""
        scan._leading = self._leading
        self._sessions.close()
        self.seen.counted.update(self._office.counted)
        self.seen.passed, self.seen.struck = self._office.points
        self._office.close()
        return self.seen


def play_all(url: str, folder: Path, seed: int, numbers: Sequence[int]) -> Seen:
    """Play the schedules of these numbers to the first that fails."""
    records.DIGEST_CHUNK = _CHUNK
    with MailSink() as sink:
        hour = Hour(url, folder, sink, seed)
        for number in numbers:
            with named(f"schedule {number}; SCRIBE_PROOF_SEED={seed} SCRIBE_PROOF_ONLY={number} plays it again"):
                hour.play(number)
            if hour.seen.failure is not None:
                break
        return hour.close()


@pytest.fixture(scope="module")
def seen(server: EmbeddedServer, tmp_path_factory: pytest.TempPathFactory) -> list[Seen]:
    """What each of the processes saw; they share the schedules."""
    seed, numbers = seed_of("notices"), numbers_of("notices")
    with ExitStack() as stack:
        urls = [stack.enter_context(fresh_database(server)) for _ in range(_PROCESSES)]
        pool = stack.enter_context(ProcessPoolExecutor(_PROCESSES, multiprocessing.get_context("spawn")))
        shares = [
            pool.submit(play_all, url, tmp_path_factory.mktemp("hour"), seed, numbers[first::_PROCESSES])
            for first, url in enumerate(urls)
        ]
        return [share.result() for share in shares]


@pytest.mark.proof
def test_no_schedule_tells_too_often_or_loses_a_failure(seen: list[Seen]) -> None:
    """R177-R184, R187-R193, R204: I13 and I14 hold after each commit of any schedule, and each failure is accounted for at rest."""
    failures = [one.failure for one in seen if one.failure is not None]
    assert not failures, failures[0]
    counted = sum((one.counted for one in seen), Counter())
    tell(f"notices: {len(numbers_of('notices'))} schedules, {', '.join(f'{counted[name]} {name}' for name in sorted(counted))}")
    passed, struck = sum((one.passed for one in seen), Counter()), sum((one.struck for one in seen), Counter())
    spared = ", ".join(sorted(passed.keys() - struck.keys())) or "none"
    tell(f"struck {struck.total()} times, at {len(struck)} of {len(passed)} kinds of points; spared were: {spared}")


@pytest.mark.proof
def test_schedules_see_every_state_of_a_notice(seen: list[Seen]) -> None:
    """R179-R182, R187, R193, R196: the schedules have what they are to judge, so that nothing holds for want of it."""
    counted = sum((one.counted for one in seen), Counter())
    played = len(numbers_of("notices"))
    wanted = (_WANTED if played >= _ENOUGH else ()) + (_RARE if played >= _ENOUGH_FOR_ALL else ())
    assert not {*wanted} - counted.keys()


def test_time_that_passes_within_a_claim_brings_no_digest_early(house: House, database_url: str) -> None:
    """R187, R192: a digest is an hour later than the last by the stamp that the next one is measured by."""
    clock = Clock(database_url)
    house.engine.dispose()
    with MailSink() as sink:
        endings = Endings(house, sink, max_per_hour=0)
        endings.active()
        endings.flyer()
        endings.scan()
        assert endings.digest().covered
        clock.pass_time(3500)
        endings.flyer()
        endings.scan()

        def dawdle(*given: Any) -> None:
            if "max(" in given[2]:
                clock.pass_time(900)

        event.listen(house.engine, "before_cursor_execute", dawdle)
        assert not endings.digest().covered
        assert endings.digest().covered == {"flyer_tagging_jobs": 1}
        first, second = house.rows("SELECT failure_notified_at AS at FROM flyer_tagging_jobs ORDER BY failure_notified_at")
    assert second.at - first.at >= timedelta(hours=1)
    clock.close()
