"""What the queue looks like to an operator: read-only, and never a token."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from sqlalchemy import Connection, Float, case, cast, func, select

from scribe_pipeline.database import load_json
from scribe_pipeline.database.tables import (
    annotation_pages,
    item_images,
    transcription_job_attempts,
    transcription_jobs,
)
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import AuditEntry, read_audit
from scribe_pipeline.jobs.queue import NOW

jobs, attempts, images = transcription_jobs, transcription_job_attempts, item_images


@dataclass(frozen=True)
class JobListing:
    """A job as a list shows it. `age_seconds` is how long it has been due, or has run; None once it is over, or not due yet."""

    id: UUID
    item_image_id: UUID
    page: str
    status: str
    age_seconds: float | None
    attempt_count: int
    max_attempts: int
    input_revision: int
    error_category: str | None
    created_at: datetime


@dataclass(frozen=True)
class AttemptListing:
    """One attempt, as evidence."""

    attempt_number: int
    outcome: str
    error_category: str | None
    input_revision: int
    result_revision: int | None
    lease_owner: str
    started_at: datetime
    finished_at: datetime | None


@dataclass(frozen=True)
class JobDetail:
    """All of a job that an operator may ask for. `page_revision` is the page's head now.

    `context` is what it is read with, `transcriber` (provider/model) by whom. `failures` is how many lines of the page as it was
    committed have failed, by category, the most frequent first. `outcome_class` and `notice` are there once its outcome is
    recorded: what became of it, and whether somebody was told.
    """

    job: JobListing
    batch_id: UUID | None
    supersedes: UUID | None
    superseded_by: UUID | None
    context_snapshot: str
    total_segments: int
    completed_segments: int
    failed_segments: int
    context: str
    transcriber: str
    failures: dict[str, int]
    retry_after: datetime | None
    lease_owner: str | None
    lease_until: datetime | None
    result_revision: int | None
    page_revision: int | None
    error: str | None
    outcome_class: str | None
    notice: str | None
    attempts: tuple[AttemptListing, ...]
    audit: tuple[AuditEntry, ...]

    @property
    def verdict(self) -> str:
        """Whether the page is what the job made of it."""
        if self.result_revision is None:
            return "no result"
        if self.result_revision == self.job.input_revision + 1 == self.page_revision:
            return "match"
        if self.page_revision is not None and self.page_revision > self.result_revision:
            return "match, revised since"
        return "mismatch"


@dataclass(frozen=True)
class QueueHealth:
    """How the queue stands: jobs that are due, the seconds since the first of them was, and leases that ran out long ago."""

    due: int
    oldest_due_seconds: float
    running: int
    expired_leases: int


_STARTED = (
    select(attempts.c.started_at)
    .where(attempts.c.job_id == jobs.c.id, attempts.c.attempt_number == jobs.c.attempt_count)
    .scalar_subquery()
)
# Since when a job is due, or runs; a later moment, and null, is no age.
_SINCE = case((jobs.c.status == "pending", jobs.c.due_at), (jobs.c.status == "running", _STARTED))
_AGE = cast(func.extract("epoch", func.clock_timestamp() - _SINCE), Float)
_LISTED = select(
    jobs.c.id,
    jobs.c.item_image_id,
    images.c.label.label("page"),
    jobs.c.status,
    case((_AGE >= 0, _AGE)).label("age_seconds"),
    jobs.c.attempt_count,
    jobs.c.max_attempts,
    jobs.c.input_revision,
    jobs.c.error_category,
    jobs.c.created_at,
).join(images, images.c.id == jobs.c.item_image_id)


def list_jobs(connection: Connection, *, status: str | None, batch_id: UUID | None, limit: int) -> list[JobListing]:
    """Return the newest jobs, those of one status or batch if one is given."""
    wanted = _LISTED.order_by(jobs.c.id.desc()).limit(limit)
    if status is not None:
        wanted = wanted.where(jobs.c.status == status)
    if batch_id is not None:
        wanted = wanted.where(jobs.c.batch_id == batch_id)
    return [JobListing(**row._mapping) for row in connection.execute(wanted)]


def load_job(connection: Connection, job_id: UUID) -> JobDetail:
    """Return a job with its attempts in order. Raises ScribeError (not_found)."""
    listed = connection.execute(_LISTED.where(jobs.c.id == job_id)).one_or_none()
    if listed is None:
        raise ScribeError(Category.NOT_FOUND, f"there is no job {job_id}")
    job = connection.execute(
        select(
            jobs,
            annotation_pages.c.revision.label("page_revision"),
            jobs.c.outcome_facts["notice"].astext.label("notice"),
        )
        .outerjoin(annotation_pages, annotation_pages.c.item_image_id == jobs.c.item_image_id)
        .where(jobs.c.id == job_id)
    ).one()
    own = set(JobDetail.__dataclass_fields__) - {"job", "context", "transcriber", "failures", "superseded_by", "attempts", "audit"}
    # whatever stands there: None is what is nested too deep
    asked = load_json(job.context_snapshot) or {}
    return JobDetail(
        job=JobListing(**listed._mapping),
        context=str(asked.get("name", "?")),
        transcriber="/".join(str(asked.get(f"transcription_{part}", "?")) for part in ("provider", "model")),
        failures=dict(Counter(str(failure).removeprefix("line: ") for failure in job.failures).most_common()),
        superseded_by=connection.scalar(
            select(jobs.c.id).where(jobs.c.item_image_id == job.item_image_id, jobs.c.supersedes == job_id)
        ),
        attempts=_attempts(connection, job_id),
        audit=read_audit(connection, f"job {job_id}", f"batch {job.batch_id}"),
        **{name: getattr(job, name) for name in own},
    )


def queue_health(connection: Connection, expired_for_seconds: float) -> QueueHealth:
    """Return how the queue stands; a lease counts as expired if that is longer ago than `expired_for_seconds`."""
    now = func.clock_timestamp()
    due_pending = (jobs.c.status == "pending") & (jobs.c.due_at <= now)
    late = now - func.make_interval(0, 0, 0, 0, 0, 0, expired_for_seconds)
    row = connection.execute(
        select(
            func.count().filter(due_pending),
            func.coalesce(func.extract("epoch", now - func.min(jobs.c.due_at).filter(due_pending)), 0),
            func.count().filter(jobs.c.status == "running"),
            func.count().filter(jobs.c.status == "running", jobs.c.lease_until < late),
        ).where(jobs.c.due_at.is_not(None))
    ).one()
    return QueueHealth(row[0], float(row[1]), row[2], row[3])


def due_without_batch(connection: Connection) -> int:
    """Return how many jobs are due that no open batch sees to, counted up to a thousand."""
    due = select(jobs.c.id).where(jobs.c.batch_id.is_(None), jobs.c.due_at <= NOW).limit(1000)
    return connection.execute(select(func.count()).select_from(due.subquery())).scalar_one()


def _attempts(connection: Connection, job_id: UUID) -> tuple[AttemptListing, ...]:
    columns = [attempts.c[name] for name in AttemptListing.__dataclass_fields__]
    rows = connection.execute(select(*columns).where(attempts.c.job_id == job_id).order_by(attempts.c.attempt_number))
    return tuple(AttemptListing(*row) for row in rows)
