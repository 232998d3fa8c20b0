"""The queue of transcription jobs: claim, lease, fence, completion, and the loop that works on claimed units."""

from scribe_pipeline.jobs.completion import complete_job
from scribe_pipeline.jobs.loop import drain
from scribe_pipeline.jobs.queue import (
    JobClaim,
    claim_job,
    create_job,
    end_attempt,
    record_preflight,
    record_progress,
    renew_claim,
)
from scribe_pipeline.jobs.transcription import TranscribedPage, TranscriptionSource

__all__ = [
    "JobClaim",
    "TranscribedPage",
    "TranscriptionSource",
    "claim_job",
    "complete_job",
    "create_job",
    "drain",
    "end_attempt",
    "record_preflight",
    "record_progress",
    "renew_claim",
]
