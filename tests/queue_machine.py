"""Random walks over the queue's operations on a real database, step by step compared with the queue as it should be."""

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from hypothesis.stateful import initialize, precondition, rule
from hypothesis.strategies import booleans, integers, sampled_from

from scribe_pipeline.errors import Category
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import cancel_batch
from scribe_pipeline.jobs import (
    JobClaim,
    cancel_job,
    claim_jobs,
    create_job,
    end_attempt,
    record_preflight,
    record_progress,
    renew_claim,
    request_job,
)
from tests.houses import House
from tests.queue_model import Job, Page
from tests.queue_walk import CONTEXTS, LINES, PERMANENT, STOPPED, WORKSPACES, QueueWalk, by_workspace, refused

T = TypeVar("T")

OPERATOR = Operator("operator", "a walk")
# Longer than any walk, so that nothing runs out that the walk has not let run out.
_LEASE_SECONDS = 100_000
_MAX_PAGES, _MAX_JOBS = 6, 30

# Writes of a worker that does not hold the job any more.
LATE_WRITES: dict[str, Callable[[House, JobClaim], object]] = {
    "preflight": lambda house, claim: record_preflight(house.engine, claim, {"segments": 9}, 9),
    "progress": lambda house, claim: record_progress(house.engine, claim, 0, 0),
    "fail": lambda house, claim: end_attempt(house.engine, claim, Category.AUTHENTICATION),
    "defer": lambda house, claim: end_attempt(house.engine, claim, Category.TIMEOUT),
    "complete": lambda house, claim: house.complete(claim),
}

# Which of several: the number is reduced to how many there are.
any_of = integers(0, 59)
attempts_allowed = sampled_from((1, 2, 2, 7))
reasons = sampled_from((*PERMANENT, *STOPPED, Category.TIMEOUT, Category.UPSTREAM, Category.UNCLASSIFIED))


def one(among: list[T], number: int) -> T:
    """Return the one that the number stands for."""
    return among[number % len(among)]


def when(holds: Callable[["QueueMachine"], object]) -> Callable[[T], T]:
    """Offer a rule only while it has something to work on."""
    return precondition(lambda machine: bool(holds(machine)))


class QueueMachine(QueueWalk):
    """The operations, each offered while it has something to work on."""

    @initialize(pages=integers(1, 2), max_attempts=attempts_allowed)
    def begin(self, pages: int, max_attempts: int) -> None:
        """A walk has at least one batch."""
        self.add_batch(pages, 0, max_attempts)

    @when(lambda self: len(self.queue.pages) < _MAX_PAGES)
    @rule(workspace=sampled_from(WORKSPACES))
    def new_page(self, workspace: str) -> None:
        """An image with a page, of no batch."""
        self.queue.pages.append(Page(self.house.page(workspace=workspace)))
        self.done["new pages"] += 1

    @when(lambda self: len(self.queue.pages) < _MAX_PAGES)
    @rule(pages=integers(1, 2), incomplete=integers(0, 1), max_attempts=attempts_allowed)
    def new_batch(self, pages: int, incomplete: int, max_attempts: int) -> None:
        """A batch as segmentation leaves it."""
        self.add_batch(pages, incomplete, max_attempts)
        self.done["new batches"] += 1

    @when(lambda self: len(self.queue.jobs) < _MAX_JOBS)
    @rule(
        which=any_of,
        name=sampled_from((None, *CONTEXTS)),
        max_attempts=attempts_allowed,
        edited=sampled_from((False, False, False, True)),
    )
    def request(self, which: int, name: str | None, max_attempts: int, edited: bool) -> None:
        """An operator asks for a page; without a name, with the context of its newest job as it is configured by now."""
        page = one(self.queue.pages, which)
        newest = self.queue.newest_job(page)
        wanted = name or (newest.context.name if newest else "letter")
        if edited:
            self.edit(wanted)
        made = request_job(self.house.engine, page.image.id, name, max_attempts, OPERATOR)
        assert made.corrected_by == ("reader" if page.chain[-1][0] == "human" else None)
        self.requested(replace(made, corrected_by=None), page, self.contexts[wanted], max_attempts)

    @when(lambda self: len(self.queue.jobs) < _MAX_JOBS)
    @rule(which=any_of, name=sampled_from(CONTEXTS), max_attempts=attempts_allowed)
    def create(self, which: int, name: str, max_attempts: int) -> None:
        """A stage asks for a page in its own transaction."""
        page, context = one(self.queue.pages, which), self.contexts[name]
        with self.house.engine.begin() as connection:
            made = create_job(connection, page.image, context, max_attempts)
        self.requested(made, page, context, max_attempts)

    @when(lambda self: any(job.due or job.status == "running" for job in self.queue.jobs))
    @rule(limit=integers(1, 3), all_died=booleans())
    def claim(self, limit: int, all_died: bool) -> None:
        """A worker of all workspaces, the others may have died. Whose turn it is, is not known here; the order inside each is."""
        if all_died:
            self.age(self.leased())
        due = self.queue.due()
        claims = {claim.job_id: claim for claim in claim_jobs(self.house.engine, _LEASE_SECONDS, limit)}
        failed = {row.id for row in self.house.rows("SELECT id FROM transcription_jobs WHERE status = 'failed'")}
        taken = [job for job in due if job.id in claims or job.id in failed]
        spaces = by_workspace(due)
        for workspace, jobs in by_workspace(taken).items():
            assert jobs == spaces[workspace][: len(jobs)]
        assert len(claims) <= limit
        assert len(taken) >= min(limit, len(due))
        assert len(by_workspace(taken)) >= min(limit, len(spaces))
        assert claims or taken == due
        self.take(taken, claims)

    @when(lambda self: any(job.active for job in self.queue.jobs))
    @rule(which=any_of, limit=integers(1, 3), all_died=booleans())
    def claim_of_batch(self, which: int, limit: int, all_died: bool) -> None:
        """A worker of one batch: it gets the first ones that are due, and goes on while all that it meets are exhausted."""
        if all_died:
            self.age(self.leased())
        batch = one(self.queue.batches, which)
        due = [job for job in self.queue.due() if job.batch is batch]
        claims = {claim.job_id: claim for claim in claim_jobs(self.house.engine, _LEASE_SECONDS, limit, batch.id)}
        taken: list[Job] = []
        while len(taken) < len(due) and all(job.exhausted for job in taken):
            taken += due[len(taken) : len(taken) + limit]
        self.take(taken, claims)

    @when(lambda self: self.queue.held())
    @rule(which=any_of, write=sampled_from(("renew", "progress", "give up")), lines=integers(0, LINES - 1), reason=reasons)
    def work(self, which: int, write: str, lines: int, reason: Category) -> None:
        """Somebody who holds a job, and may have lost track of the time, does what a worker does before the end, or instead."""
        job = one(self.queue.held(), which)
        claim = job.attempts[-1].claim
        if write == "renew":
            self.renew(job, claim)
        elif write == "progress":
            self.progress(job, claim, lines)
        else:
            self.give_up(job, claim, reason)

    @when(lambda self: self.queue.held())
    @rule(which=any_of, failed=integers(0, LINES - 1))
    def complete(self, which: int, failed: int) -> None:
        """Somebody who holds a job commits, unless somebody has saved the page meanwhile."""
        job = one(self.queue.held(), which)
        claim = job.attempts[-1].claim
        if job.page.revision != job.input_revision:
            refused(Category.PAGE_CHANGED, lambda: self.house.complete(claim))
            self.done["completions of a changed page"] += 1
        else:
            assert self.house.complete(claim, failed=failed) == self.queue.complete(job, LINES, failed)
            self.done["partial completions" if failed else "completions"] += 1

    @when(lambda self: any(job.active and job.due is None for job in self.queue.jobs))
    @rule(which=any_of, everybody=booleans())
    def time_passes(self, which: int, everybody: bool) -> None:
        """A lease runs out or a retry's wait is over, or all of them."""
        waiting = [job for job in self.queue.jobs if job.status == "pending" and job.due is None]
        timed = self.leased() + waiting
        self.age(timed if everybody else [one(timed, which)])

    @when(lambda self: self.unsaved())
    @rule(which=any_of, behind=sampled_from((0, 0, 1, -1)))
    def save(self, which: int, behind: int) -> None:
        """A person saves a page that is to be transcribed as he has seen it last, which may be another revision than the head."""
        page = one(self.unsaved(), which)
        if behind:
            refused(Category.PAGE_CHANGED, lambda: self.house.save(page.image.id, page.revision - behind))
            self.done["stale saves"] += 1
        else:
            assert self.house.save(page.image.id, page.revision) == self.queue.save(page)
            self.done["saves"] += 1

    @when(lambda self: any(job.active for job in self.queue.jobs))
    @rule(which=any_of, too_late=sampled_from((False, False, False, True)))
    def cancel(self, which: int, too_late: bool) -> None:
        """An operator cancels a job; one that has ended, to no effect if it is canceled, and not at all otherwise."""
        ended = [job for job in self.queue.jobs if not job.active]
        job = one(ended if too_late and ended else [job for job in self.queue.jobs if job.active], which)
        if job.active or job.status == "canceled":
            assert cancel_job(self.house.engine, job.id, OPERATOR) == job.active
            self.done["canceled" if job.active else "canceled before"] += 1
            self.queue.cancel([job] if job.active else [])
        else:
            refused(Category.FAILED_PRECONDITION, lambda: cancel_job(self.house.engine, job.id, OPERATOR))
            self.done["too late to cancel"] += 1

    @when(lambda self: any(job.active and job.batch for job in self.queue.jobs))
    @rule(which=any_of)
    def cancel_batch(self, which: int) -> None:
        """An operator cancels a batch, with the successors of its jobs; again to no effect."""
        batch = one(self.queue.batches, which)
        assert cancel_batch(self.house.engine, batch.id, OPERATOR) == (batch.status == "running")
        batch.status = "canceled"
        self.queue.cancel(job for job in self.queue.jobs if job.active and job.batch is batch)
        self.done["canceled batches"] += 1

    @when(lambda self: self.queue.ended())
    @rule(which=any_of, write=sampled_from(sorted(LATE_WRITES)))
    def late_write(self, which: int, write: str) -> None:
        """A worker writes who has lost his job, to one that is held again if there is any; who has completed it is told so."""
        ended = self.queue.ended()
        job, attempt = one([pair for pair in ended if pair[0].status == "running"] or ended, which)
        assert not renew_claim(self.house.engine, attempt.claim)
        if write == "complete" and attempt.outcome == "completed":
            assert self.house.complete(attempt.claim, "again") == attempt.result
            self.done["repeated completions"] += 1
        else:
            refused(Category.LEASE_LOST, lambda: LATE_WRITES[write](self.house, attempt.claim))
            self.done[f"late writes while {job.status}"] += 1
