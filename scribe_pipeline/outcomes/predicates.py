"""What the strings mean that a job ends with: the one place that both the refund policy and the outcome classes ask.

The lists are matched at the beginning of a string, without regard to case; those of `is_cancelled` up to the end of a word, in one
spelling for all. Whoever changes one raises `VERSION`.
"""

import re
from collections.abc import Sequence

VERSION = 2

SKIPPED = "skipped: "
# Findings about accessibility alone: the file looks as it did and is whole. A line that only came back blank is of this kind.
COMPLIANCE_ONLY = ("compliance:", "pdf/ua", "verapdf:", "matterhorn", "wcag", "line: no_text")
CANCELLED = ("cancelled by", "cancelled: user", "cancelled (user", "user cancelled", "job cancelled", "job was cancelled")
# Whatever follows these may say that it was not somebody.
CANCELLED_ALONE = ("cancelled",)
# What stops a job by itself, however it is said.
DEADLINES = ("deadline", "timeout", "timed out")
SOURCE_DELETED = (
    "source deleted",
    "source was deleted",
    "source file deleted",
    "source file was deleted",
    "file deleted",
    "file was deleted",
)


def is_skipped(passed: bool | None, error: str | None) -> bool:
    """Whether the job ended without a verdict because there was nothing to be done for such a file."""
    return passed is None and error is not None and error.startswith(SKIPPED)


def is_compliance_only(passed: bool | None, failures: Sequence[str]) -> bool:
    """Whether the job did not pass for reasons of compliance alone; one that gives no reason is not known to be so."""
    return passed is False and bool(failures) and all(_begins(failure, COMPLIANCE_ONLY) for failure in failures)


def is_fidelity_failure(passed: bool | None, failures: Sequence[str]) -> bool:
    """Whether the job did not pass for any other reason: the result differs from its source, or may."""
    return passed is False and not is_compliance_only(passed, failures)


def is_cancelled(error: str | None) -> bool:
    """Whether a job that failed did so because somebody stopped it or took its source away."""
    if error is None:
        return False
    said = _in_one_spelling(error)
    if any(deadline in said for deadline in DEADLINES):
        return False
    return said in CANCELLED_ALONE or any(
        said.startswith(words) and not said[len(words) :][:1].isalnum() for words in CANCELLED + SOURCE_DELETED
    )


def _in_one_spelling(text: str) -> str:
    """Return `The job_was-canceled` as `job was cancelled`."""
    said = re.sub(r"[\s_-]+", " ", text.lower()).strip(" .")
    return re.sub(r"\bcanceled\b", "cancelled", said).removeprefix("the ")


def _begins(text: str, beginnings: Sequence[str]) -> bool:
    return text.strip().lower().startswith(tuple(beginnings))
