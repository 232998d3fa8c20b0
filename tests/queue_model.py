"""The queue as it should be, in memory: what becomes of jobs, attempts, pages and events by each operation, and as which rows."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from uuid import UUID

from scribe_pipeline.contexts import ContextSnapshot
from scribe_pipeline.errors import Category
from scribe_pipeline.events import EventType
from scribe_pipeline.jobs import ACTIVE, JobClaim
from scribe_pipeline.pages import Image

# The same rows, in the same order, as `Queue.rows` says them.
OBSERVED = {
    "jobs": """SELECT id, item_image_id, batch_id, supersedes, context_snapshot, input_revision, status, attempt_count, lease_token,
        result_revision, error_category, total_segments, completed_segments, failed_segments, due_at <= clock_timestamp()
        FROM transcription_jobs ORDER BY id""",
    "attempts": """SELECT job_id, attempt_number, lease_token, outcome, error_category, result_revision
        FROM transcription_job_attempts ORDER BY job_id, attempt_number""",
    "pages": "SELECT item_image_id, revision FROM annotation_pages ORDER BY item_image_id",
    "revisions": """SELECT item_image_id, revision, author_kind, job_id
        FROM annotation_page_revisions ORDER BY item_image_id, revision""",
    "baselines": """SELECT current.item_image_id, run.job_id FROM current_ocr_runs AS current
        JOIN ocr_runs AS run ON run.id = current.ocr_run_id ORDER BY current.item_image_id""",
    "events": "SELECT event_type, count(*) FROM event_outbox GROUP BY event_type ORDER BY event_type",
    "batches": "SELECT id, status FROM ingest_batches ORDER BY id",
}

# When a job is due: those that a test has aged come before those that are as new as they were made, each by its number.
Place = tuple[bool, int]
_NO_SEGMENTS = (0, 0, 0)


@dataclass(eq=False)
class Batch:
    """A batch, open until it is canceled."""

    id: UUID
    status: str = "running"


@dataclass(eq=False)
class Page:
    """An image with its page: who wrote each revision, as kind and job, and the job that its baseline is from."""

    image: Image
    chain: list[tuple[str, UUID | None]] = field(default_factory=lambda: [("ocr", None)])
    baseline: UUID | None = None

    @property
    def revision(self) -> int:
        """The head."""
        return len(self.chain)


@dataclass(eq=False)
class Attempt:
    """A claim and how it ended."""

    claim: JobClaim
    outcome: str = "running"
    category: Category | None = None
    result: int | None = None


@dataclass(eq=False)
class Job:
    """A job. `due` is its place among the due ones; None while it waits or its lease lives, and once it has ended."""

    id: UUID
    page: Page
    batch: Batch | None
    supersedes: UUID | None
    context: ContextSnapshot
    input_revision: int
    max_attempts: int
    due: Place | None
    status: str = "pending"
    category: Category | None = None
    segments: tuple[int, int, int] = _NO_SEGMENTS
    attempts: list[Attempt] = field(default_factory=list)

    @cached_property
    def snapshot(self) -> str:
        """The context as it was when the job was made, as its row says it."""
        return self.context.to_text()

    @property
    def active(self) -> bool:
        """Whether it may still be worked on."""
        return self.status in ACTIVE

    @property
    def alive(self) -> bool:
        """Whether somebody will see to it: it is pending, or its lease lives."""
        return self.status == "pending" or (self.status == "running" and self.due is None)

    @property
    def exhausted(self) -> bool:
        """Whether no attempt is left."""
        return len(self.attempts) >= self.max_attempts


class Queue:
    """All jobs, pages and batches of one walk, and the events that were told."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.pages: list[Page] = []
        self.batches: list[Batch] = []
        self.events: Counter[str] = Counter()
        self._placed = 0

    def place(self, *, aged: bool) -> Place:
        """Return the place behind all others of its kind."""
        self._placed += 1
        return not aged, self._placed

    def held(self) -> list[Job]:
        """The jobs that somebody holds, whether his lease lives or not."""
        return [job for job in self.jobs if job.status == "running"]

    def ended(self) -> list[tuple[Job, Attempt]]:
        """The attempts that are over, each of them with a worker who may not know yet."""
        return [(job, attempt) for job in self.jobs for attempt in job.attempts if attempt.outcome != "running"]

    def due(self) -> list[Job]:
        """The jobs that a claim may take, in the order in which it has to."""
        return sorted((job for job in self.jobs if job.due is not None), key=lambda job: job.due or (True, 0))

    def newest_job(self, page: Page) -> Job | None:
        """The page's last job, whatever became of it."""
        return next((job for job in reversed(self.jobs) if job.page is page), None)

    def serving(self, page: Page, context: ContextSnapshot) -> tuple[Job | None, Job | None]:
        """The page's job that serves a request as it is, or else the one that a new job is to supersede."""
        active = next((job for job in self.jobs if job.page is page and job.active), None)
        if active and active.alive and (active.context, active.input_revision) == (context, page.revision):
            return active, None
        return None, active

    def add_job(
        self, job_id: UUID, page: Page, context: ContextSnapshot, max_attempts: int, batch: Batch | None, old: Job | None = None
    ) -> None:
        """A new job, at the expense of the one that it supersedes."""
        if old is not None:
            self._end(old, "superseded")
        place = self.place(aged=False)
        self.jobs.append(Job(job_id, page, batch, old.id if old else None, context, page.revision, max_attempts, place))

    def take(self, job: Job, claim: JobClaim | None) -> None:
        """A claim has come to a due job: its lost attempt is over; it has a new one, or fails if none is left."""
        if job.status == "running":
            job.attempts[-1].outcome = "lease_expired"
        if claim is None:
            self._fail(job, Category.ATTEMPTS_EXHAUSTED)
        else:
            job.status, job.due, job.segments = "running", None, _NO_SEGMENTS
            job.attempts.append(Attempt(claim))

    def complete(self, job: Job, total: int, failed: int) -> int:
        """The holder has committed what he read."""
        job.page.chain.append(("ocr", job.id))
        job.page.baseline = job.page.baseline or job.id
        self._end(job, "completed")
        job.attempts[-1].result = job.page.revision
        job.segments = (total, total - failed, failed)
        self.events[EventType.TRANSCRIPTION_COMPLETED] += 1
        return job.page.revision

    def give_up(self, job: Job, category: Category, *, may_pass: bool) -> bool:
        """The holder has ended his attempt without a result; whether the job waits for another."""
        retry = may_pass and not job.exhausted
        job.attempts[-1].category = category
        if retry:
            job.attempts[-1].outcome = "retryable_failed"
            job.status, job.due = "pending", None
        else:
            job.attempts[-1].outcome = "failed"
            self._fail(job, category)
        return retry

    def cancel(self, jobs: Iterable[Job]) -> None:
        """An operator has canceled these."""
        for job in jobs:
            self._end(job, "canceled")
            self.events[EventType.TRANSCRIPTION_CANCELED] += 1

    def save(self, page: Page) -> int:
        """A person has saved the page."""
        page.chain.append(("human", None))
        self.events[EventType.ANNOTATIONS_SAVED] += 1
        return page.revision

    def _fail(self, job: Job, category: Category) -> None:
        job.status, job.due, job.category = "failed", None, category
        self.events[EventType.TRANSCRIPTION_FAILED] += 1

    def _end(self, job: Job, status: str) -> None:
        if job.status == "running":
            job.attempts[-1].outcome = status
        job.status, job.due = status, None

    def rows(self) -> dict[str, list[tuple[object, ...]]]:
        """What the statements of OBSERVED have to find."""
        jobs = sorted(self.jobs, key=lambda job: job.id)
        pages = sorted(self.pages, key=lambda page: page.image.id)
        return {
            "jobs": [_job_row(job) for job in jobs],
            "attempts": [
                (job.id, number, _token(attempt), attempt.outcome, attempt.category, attempt.result)
                for job in jobs
                for number, attempt in enumerate(job.attempts, 1)
            ],
            "pages": [(page.image.id, page.revision) for page in pages],
            "revisions": [(page.image.id, number, *author) for page in pages for number, author in enumerate(page.chain, 1)],
            "baselines": [(page.image.id, page.baseline) for page in pages if page.baseline],
            "events": sorted(self.events.items()),
            "batches": sorted((batch.id, batch.status) for batch in self.batches),
        }


def _token(attempt: Attempt) -> str:
    return attempt.claim.lease.token.get_secret_value()


def _job_row(job: Job) -> tuple[object, ...]:
    return (
        job.id,
        job.page.image.id,
        job.batch.id if job.batch else None,
        job.supersedes,
        job.snapshot,
        job.input_revision,
        job.status,
        len(job.attempts),
        _token(job.attempts[-1]) if job.status == "running" else None,
        job.attempts[-1].result if job.status == "completed" else None,
        job.category,
        *job.segments,
        job.due is not None if job.active else None,
    )
