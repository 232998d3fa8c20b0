"""Worker processes that are killed and stopped at random while people save, cancel and ask anew: nothing is lost or done twice."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest

from scribe_pipeline.database import EmbeddedServer, connect
from scribe_pipeline.errors import ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.jobs import cancel_job, request_job
from tests.conftest import fresh_database
from tests.faults.crew import LEASE_SECONDS, Worker, Workplace, crew, read_in_time, read_pages
from tests.houses import House
from tests.proofs import named, seeded, size_of, tell, wait_until

_WORKERS, _OPEN_JOBS, _NEW_JOBS, _ROUNDS_A_SHIFT = 4, 20, 4, 50
# A stopped worker stays so until its jobs are taken from it, but no longer than this: it may be holding locks.
_LONGEST_STOP, _MOST_STOPPED = 2.5, 2
_WHO = Operator("operator", "in the middle of it")
# A person does not wait for the row locks of a stopped worker, but goes away.
_IMPATIENT = "?options=-c%20lock_timeout%3D200"

_ENDED_OTHERWISE = """
    SELECT job.id, job.status, job.error_category FROM transcription_jobs AS job
    WHERE CASE job.status
        WHEN 'completed' THEN false WHEN 'canceled' THEN false WHEN 'superseded' THEN false
        WHEN 'failed' THEN CASE job.error_category
            WHEN 'attempts_exhausted' THEN job.attempt_count < job.max_attempts
            WHEN 'page_changed' THEN NOT EXISTS (
                SELECT FROM annotation_page_revisions AS revision
                WHERE revision.item_image_id = job.item_image_id AND revision.revision > job.input_revision
                  AND revision.author_kind = 'human')
            ELSE true END
        ELSE true END
"""
# Notes who writes to a running job that another holds, other than to take it over or to end it for good; and who takes one over
# before its time.
_WATCHMAN = """
    CREATE TABLE trespasses (job_id uuid, writer text, holder text);
    CREATE FUNCTION note_trespass() RETURNS trigger LANGUAGE plpgsql AS $$
    BEGIN
        INSERT INTO trespasses VALUES (OLD.id, current_setting('application_name'), OLD.lease_owner);
        RETURN NULL;
    END $$;
    CREATE TRIGGER watchman AFTER UPDATE ON transcription_jobs FOR EACH ROW
    WHEN (OLD.status = 'running' AND CASE
        WHEN NEW.lease_token <> OLD.lease_token THEN OLD.lease_until > clock_timestamp()
        WHEN NEW.status IN ('running', 'pending', 'completed')
        THEN current_setting('application_name') <> left(OLD.lease_owner, 63) END)
    EXECUTE FUNCTION note_trespass()
"""
# What a job has written, it wrote while the attempt that completed it was running, and no other attempt was.
_WRITTEN_LATE = """
    SELECT revision.job_id, revision.revision FROM annotation_page_revisions AS revision
    LEFT JOIN transcription_job_attempts AS attempt
        ON attempt.job_id = revision.job_id AND attempt.result_revision = revision.revision
        AND revision.created_at BETWEEN attempt.started_at AND attempt.finished_at
    WHERE revision.job_id IS NOT NULL AND (attempt.job_id IS NULL OR EXISTS (
        SELECT FROM transcription_job_attempts AS other
        WHERE other.job_id = attempt.job_id AND other.attempt_number <> attempt.attempt_number
          AND other.finished_at > attempt.started_at))
"""


@dataclass(frozen=True)
class Round:
    """What is to happen in a round; `pick` chooses among the jobs that are open by then."""

    moment: float
    worker: int
    kill: bool
    act: str | None
    pick: float
    seed: int


def draw(numbers: random.Random) -> Round:
    """Draw a round."""
    return Round(
        moment=numbers.uniform(0, 0.3),
        worker=numbers.randrange(_WORKERS),
        kill=numbers.random() < 0.5,
        act=numbers.choice(["saved", "saved", "canceled", "superseded", None, None, None, None]),
        pick=numbers.random(),
        seed=numbers.randrange(10**9),
    )


@dataclass
class Shift:
    """A database with its workers, from the first job until nothing is open."""

    house: House
    place: Workplace
    workers: list[Worker]
    saved: list[tuple[UUID, int]] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)

    def open_jobs(self) -> list[UUID]:
        """The jobs that have not ended, oldest first."""
        return [
            row.id for row in self.house.rows("SELECT id FROM transcription_jobs WHERE due_at IS NOT NULL ORDER BY created_at, id")
        ]

    def add_jobs(self) -> None:
        """Give the workers enough to do, without outrunning them; every tenth job has two attempts only."""
        wanted = _OPEN_JOBS - len(self.open_jobs())
        for _ in range(min(wanted, _NEW_JOBS) if self.counted["jobs"] else wanted):
            self.counted["jobs"] += 1
            self.house.job(max_attempts=10_000 if self.counted["jobs"] % 10 else 2)

    def play(self, round_: Round) -> None:
        """Let a person act, if one is to, and strike a worker at the round's moment."""
        self.add_jobs()
        if round_.act is not None and (jobs := self.open_jobs()):
            self.act(round_.act, jobs[int(round_.pick * len(jobs))])
        time.sleep(round_.moment)
        worker = self.workers[round_.worker]
        if round_.kill:
            self.dismiss(worker)
            self.workers.insert(round_.worker, Worker(self.place, round_.seed, read_pages))
            self.counted["kills"] += 1
        elif worker.stopped_at is None:
            worker.stop()
            self.counted["stops"] += 1
        wait_until(lambda: len(self.still_stopped()) <= _MOST_STOPPED, "the end of a stop")

    def act(self, what: str, job_id: UUID) -> None:
        """Have a job canceled or superseded, or its page saved. It may have ended meanwhile, or be locked; people are told so."""
        image_id = self.house.image_of(job_id)
        try:
            if what == "saved":
                head = self.house.value("SELECT revision FROM annotation_pages WHERE item_image_id = :id", id=image_id)
                self.saved.append((image_id, self.house.save(image_id, head)))
            elif what == "canceled":
                cancel_job(self.house.engine, job_id, _WHO)
            elif request_job(self.house.engine, image_id, "manuscript", 10_000, _WHO).superseded is None:
                return
            self.counted[what] += 1
        except ScribeError:
            self.counted["too late"] += 1

    def still_stopped(self) -> list[Worker]:
        """Let go on who has lost his jobs while he was stopped, or has been stopped for too long, and return the others."""
        holders = {
            row.lease_owner for row in self.house.rows("SELECT lease_owner FROM transcription_jobs WHERE due_at IS NOT NULL")
        }
        stopped = []
        for worker in self.workers:
            seconds = 0 if worker.stopped_at is None else time.monotonic() - worker.stopped_at
            if seconds > _LONGEST_STOP or (seconds > LEASE_SECONDS and worker.owner not in holders):
                worker.resume()
            elif seconds:
                stopped.append(worker)
        return stopped

    def finish(self) -> None:
        """Let everybody work until nothing is open, with somebody who comes through however slow the machine is."""
        wait_until(lambda: not self.still_stopped(), "the end of all stops")
        self.workers.append(Worker(self.place, 0, read_in_time))
        try:
            wait_until(lambda: not self.open_jobs(), "the end of all jobs")
        except AssertionError as error:
            open_ones = "SELECT id, status, attempt_count, due_at, lease_owner FROM transcription_jobs WHERE due_at IS NOT NULL"
            error.add_note("\n".join([*map(str, self.house.rows(open_ones)), self.place.log.read_text()[-3000:]]))
            raise
        for worker in list(self.workers):
            self.dismiss(worker)

    def dismiss(self, worker: Worker) -> None:
        """Kill a worker, who must have been alive."""
        self.workers.remove(worker)
        assert worker.kill(), self.place.log.read_text()

    def check(self) -> None:
        """See that each job has ended as it may, each person's save is there, and no dead token has written."""
        assert self.house.rows(_ENDED_OTHERWISE) == []
        assert self.house.rows(_WRITTEN_LATE) == []
        assert self.house.rows("SELECT * FROM trespasses") == []
        people = "SELECT item_image_id, revision FROM annotation_page_revisions WHERE author_kind = 'human' ORDER BY 1, 2"
        assert [tuple(row) for row in self.house.rows(people)] == sorted(self.saved)
        ended = Counter(row.status for row in self.house.rows("SELECT status FROM transcription_jobs"))
        assert (ended["canceled"], ended["superseded"]) == (self.counted["canceled"], self.counted["superseded"])
        lost = "SELECT count(*) FROM transcription_job_attempts WHERE outcome = 'lease_expired'"
        warnings = self.place.log.read_text()
        self.counted |= Counter(
            {
                "completed": ended["completed"],
                "failed": ended["failed"],
                "leases expired": self.house.value(lost),
                "late writes dropped": warnings.count("a write was dropped"),
                "late renewals refused": warnings.count("a lease was lost"),
            }
        )


@pytest.mark.proof
def test_killed_and_stopped_workers_lose_nothing(server: EmbeddedServer, tmp_path: Path) -> None:
    """R6, R7, R10, R20, R27, R37, R94, R98: every job ends once, whatever becomes of its workers, and no late one writes."""
    numbers = seeded("kill_workers")
    rounds = [draw(numbers) for _ in range(size_of("kill_workers"))]
    total: Counter[str] = Counter()
    for first in range(0, len(rounds), _ROUNDS_A_SHIFT):
        with named(f"rounds from {first} on"), fresh_database(server) as url:
            place = Workplace(url, str(tmp_path / "blobs"), tmp_path / f"warnings-{first}")
            house = House(connect(url + _IMPATIENT), tmp_path / "blobs")
            house.execute(_WATCHMAN)
            with crew(place, numbers, _WORKERS, read_pages) as workers:
                shift = Shift(house, place, workers)
                for number, round_ in enumerate(rounds[first : first + _ROUNDS_A_SHIFT], first):
                    with named(f"round {number}: {round_}"):
                        shift.play(round_)
                shift.finish()
            shift.check()
            house.engine.dispose()
        total += shift.counted
    tell(f"kill_workers: {len(rounds)} rounds: {', '.join(f'{count} {what}' for what, count in total.items())}")
