"""The queue of transcription jobs: requests, claims, leases, fences, completion, and the loop that works on claimed units."""

from scribe_pipeline.jobs.completion import complete_job
from scribe_pipeline.jobs.loop import drain
from scribe_pipeline.jobs.queue import (
    ACTIVE,
    NOW,
    JobClaim,
    claim_jobs,
    end_attempt,
    record_preflight,
    record_progress,
    renew_claim,
)
from scribe_pipeline.jobs.report import JobDetail, JobListing, QueueHealth, due_without_batch, list_jobs, load_job, queue_health
from scribe_pipeline.jobs.requests import JobRequest, cancel_job, cancel_rows, create_job, insert_job, request_job
from scribe_pipeline.jobs.transcription import TranscribedPage, TranscriptionSource

__all__ = [
    "ACTIVE",
    "NOW",
    "JobClaim",
    "JobDetail",
    "JobListing",
    "JobRequest",
    "QueueHealth",
    "TranscribedPage",
    "TranscriptionSource",
    "cancel_job",
    "cancel_rows",
    "claim_jobs",
    "complete_job",
    "create_job",
    "drain",
    "due_without_batch",
    "end_attempt",
    "insert_job",
    "list_jobs",
    "load_job",
    "queue_health",
    "record_preflight",
    "record_progress",
    "renew_claim",
    "request_job",
]
