"""What a random walk over the queue stands on: a database, the queue as it should be, and what its steps have in common."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis.stateful import RuleBasedStateMachine, invariant

from scribe_pipeline.contexts import ContextSnapshot, find_context
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.jobs import JobClaim, JobRequest, end_attempt, record_preflight, record_progress, renew_claim
from tests.conftest import broken_in
from tests.houses import THREE_LINES, House
from tests.queue_model import OBSERVED, Batch, Job, Page, Queue

WORKSPACES = ("default", "second", "third")
CONTEXTS = ("letter", "manuscript")
LINES = len(THREE_LINES)
PERMANENT = (Category.AUTHENTICATION, Category.NO_TEXT, Category.PAGE_CHANGED)
STOPPED = (Category.INTERRUPTED, Category.CANCELED)


def refused(category: Category, write: Callable[[], object]) -> None:
    """Do what must be refused, for this reason."""
    with pytest.raises(ScribeError) as caught:
        write()
    assert caught.value.category is category


def by_workspace(jobs: list[Job]) -> dict[UUID, list[Job]]:
    """The jobs of each workspace, in their order."""
    spaces: dict[UUID, list[Job]] = {}
    for job in jobs:
        spaces.setdefault(job.page.image.workspace_id, []).append(job)
    return spaces


class QueueWalk(RuleBasedStateMachine):
    """One walk. It begins with nothing but workspaces and contexts; what it did is added to `done`."""

    def __init__(self, house: House, watch: psycopg.Connection[Any], done: Counter[str]) -> None:
        super().__init__()
        self.house = house
        self.watch = watch
        self.done = done
        self.queue = Queue()
        house.empty()
        house.execute("UPDATE contexts SET temperature = NULL")
        with house.engine.connect() as connection:
            workspace_id = house.value("SELECT id FROM workspaces WHERE name = 'default'")
            self.contexts = {name: find_context(connection, workspace_id, name) for name in CONTEXTS}

    @invariant()
    def rows_are_as_they_should_be(self) -> None:
        """After every step, all rows that an operation may have written."""
        self.done["steps"] += 1
        assert self.observed() == self.queue.rows()

    def teardown(self) -> None:
        """Look for broken invariants."""
        assert broken_in(self.watch) == {}

    def observed(self) -> dict[str, list[tuple[Any, ...]]]:
        cursor = self.watch.execute(";".join(OBSERVED.values()))
        return {table: rows.fetchall() for table, rows in zip(OBSERVED, cursor.results(), strict=True)}

    def add_batch(self, pages: int, incomplete: int, max_attempts: int) -> None:
        batch_id, images = self.house.ingested(pages, incomplete, max_attempts=max_attempts)
        batch = Batch(batch_id)
        self.queue.batches.append(batch)
        job_of = {row.item_image_id: row.id for row in self.house.rows("SELECT id, item_image_id FROM transcription_jobs")}
        for image in images[:pages]:
            page = Page(image)
            self.queue.pages.append(page)
            self.queue.add_job(job_of[image.id], page, self.contexts["letter"], max_attempts, batch)

    def requested(self, made: JobRequest, page: Page, context: ContextSnapshot, max_attempts: int) -> None:
        same, old = self.queue.serving(page, context)
        if same:
            assert made == JobRequest(same.id, created=False)
            self.done["same requests"] += 1
        else:
            assert made == JobRequest(made.job_id, created=True, superseded=old.id if old else None)
            self.queue.add_job(made.job_id, page, context, max_attempts, old.batch if old else None, old)
            self.done["superseded" if old else "new jobs"] += 1

    def edit(self, name: str) -> None:
        """Configure a context anew. No job that is there already may notice."""
        temperature = (self.contexts[name].temperature or 0) + 0.001
        self.house.execute("UPDATE contexts SET temperature = :new WHERE name = :name", new=temperature, name=name)
        self.contexts[name] = self.contexts[name].model_copy(update={"temperature": temperature})
        self.done["edited contexts"] += 1

    def take(self, jobs: list[Job], claims: dict[UUID, JobClaim]) -> None:
        """These were met by a claim: those that had an attempt left were given out, as they were when they were made."""
        assert set(claims) == {job.id for job in jobs if not job.exhausted}
        for job in jobs:
            claim = claims.get(job.id)
            self.done["exhausted" if claim is None else "taken over" if job.status == "running" else "claimed"] += 1
            self.queue.take(job, claim)
            if claim is not None:
                told = (claim.item_image_id, claim.attempt_number, claim.max_attempts, claim.input_revision, claim.context_snapshot)
                frozen = (job.page.image.id, len(job.attempts), job.max_attempts, job.input_revision, job.snapshot)
                assert told == frozen

    def renew(self, job: Job, claim: JobClaim) -> None:
        """A heartbeat: it counts while the lease lives."""
        renewed = renew_claim(self.house.engine, claim)
        assert renewed == (job.due is None)
        self.done["renewed" if renewed else "too late to renew"] += 1

    def progress(self, job: Job, claim: JobClaim, lines: int) -> None:
        """How many lines there are, and after that how many are read."""
        if not job.segments[0]:
            record_preflight(self.house.engine, claim, {"segments": LINES}, LINES)
            job.segments = (LINES, 0, 0)
            self.done["preflights"] += 1
        else:
            record_progress(self.house.engine, claim, lines, 1)
            job.segments = (LINES, lines, 1)
            self.done["progress"] += 1

    def give_up(self, job: Job, claim: JobClaim, category: Category) -> None:
        """The job waits for another attempt, longer each time, or fails."""
        end_attempt(self.house.engine, claim, category)
        if self.queue.give_up(job, category, may_pass=category not in PERMANENT):
            wait = 5 if category in STOPPED else min(300, 10 * 2 ** len(job.attempts))
            assert math.isclose(self.defer_for_long(job), wait, abs_tol=1)
            self.done["deferred"] += 1
        else:
            self.done["failed"] += 1

    def leased(self) -> list[Job]:
        return [job for job in self.queue.held() if job.due is None]

    def age(self, jobs: list[Job]) -> None:
        """Let what these wait for, the end of a lease or of a retry's wait, have come long ago, one after the other."""
        for job in jobs:
            job.due = self.queue.place(aged=True)
            column = "retry_after" if job.status == "pending" else "lease_until"
            statement = (
                f"UPDATE transcription_jobs SET {column} = timestamptz '2020-01-01' + make_interval(secs => %s) WHERE id = %s"
            )
            self.watch.execute(statement, [job.due[1], job.id])
            self.done["retry times come" if job.status == "pending" else "leases run out"] += 1

    def unsaved(self) -> list[Page]:
        """The pages that are still as their active job took them."""
        return [job.page for job in self.queue.jobs if job.active and job.page.revision == job.input_revision]

    def defer_for_long(self, job: Job) -> float:
        """Put the retry off until the walk is over, and return for how many seconds it was put off before."""
        statement = """UPDATE transcription_jobs SET retry_after = retry_after + interval '1 day' WHERE id = %s
            RETURNING extract(epoch FROM old.retry_after - old.updated_at)"""
        (seconds,) = self.watch.execute(statement, [job.id]).fetchone() or (None,)
        return float(seconds)
