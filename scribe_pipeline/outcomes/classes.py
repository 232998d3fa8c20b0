"""The six classes that a job can end in, and the refund policy, which asks the same predicates."""

from dataclasses import dataclass
from enum import StrEnum

from scribe_pipeline.outcomes.predicates import is_cancelled, is_compliance_only, is_fidelity_failure, is_skipped


class OutcomeClass(StrEnum):
    """What became of a job that has ended."""

    SUCCESS = "success"
    COMPLIANCE_ONLY = "compliance_only"
    FIDELITY = "fidelity"
    NOT_TAGGABLE = "not_taggable"
    PIPELINE_ERROR = "pipeline_error"
    CANCELLED = "cancelled"

    @property
    def is_failure(self) -> bool:
        """Whether somebody wants to know of it."""
        return self not in (OutcomeClass.SUCCESS, OutcomeClass.CANCELLED)


@dataclass(frozen=True)
class Verdict:
    """How a job ended, in the terms that both families share: `finished` if it came to its end, be it a bad one."""

    finished: bool
    passed: bool | None
    failures: tuple[str, ...]
    error: str | None
    cancelled: bool = False

    @property
    def was_stopped(self) -> bool:
        """Whether the job ended because somebody stopped it or took its source away."""
        return self.cancelled or (not self.finished and is_cancelled(self.error))


def classify(verdict: Verdict) -> OutcomeClass:
    """Return the class of a job that has ended."""
    if verdict.was_stopped:
        return OutcomeClass.CANCELLED
    if not verdict.finished:
        return OutcomeClass.PIPELINE_ERROR
    if verdict.passed:
        return OutcomeClass.SUCCESS
    if is_skipped(verdict.passed, verdict.error):
        return OutcomeClass.NOT_TAGGABLE
    if is_compliance_only(verdict.passed, verdict.failures):
        return OutcomeClass.COMPLIANCE_ONLY
    if is_fidelity_failure(verdict.passed, verdict.failures):
        return OutcomeClass.FIDELITY
    return OutcomeClass.PIPELINE_ERROR


def is_refundable(verdict: Verdict) -> bool:
    """Whether what was charged is to be given back: the job yielded nothing of use, and not because somebody stopped it.

    A result that lacks in compliance alone is a result.
    """
    if verdict.was_stopped:
        return False
    kept = verdict.passed or is_compliance_only(verdict.passed, verdict.failures)
    return not (verdict.finished and kept)
