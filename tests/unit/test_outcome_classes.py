"""Every shape that a job can end in has one class, and the refund policy asks the same predicates."""

import ast
import hashlib
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from scribe_pipeline.outcomes import FAMILIES, OutcomeClass, Verdict, classify, is_refundable, predicates

FLYERS, JOBS = FAMILIES["flyer_tagging_jobs"], FAMILIES["transcription_jobs"]
PACKAGE = Path(predicates.__file__).parents[1]
COMPLIANCE, PIXEL = "compliance: no title", "pixel diff 0.12 on page 3"

# What services say of a job that somebody stopped, or whose source was taken away.
STOPPED = (
    *("cancelled", "Canceled", " CANCELLED. ", "cancelled: user request", "Cancelled (user)", "user_cancelled", "user-cancelled"),
    *("user canceled", "Job was cancelled by the user", "The job was canceled", "the_job_was_canceled", "job canceled"),
    *("source-deleted", "source_deleted", "Source was deleted", "file_deleted", "file deleted.", "the source file was deleted"),
)

# status, passed, failures, error; the class, and whether what was charged is given back
SHAPES = [
    ("done", True, [], None, "success", False),
    ("done", True, None, None, "success", False),
    ("done", True, [PIXEL], "skipped: no text", "success", False),
    ("done", False, [COMPLIANCE], None, "compliance_only", False),
    ("done", False, [COMPLIANCE, "PDF/UA-1 7.1", "veraPDF: 7.21", "Matterhorn 06", "WCAG 1.1"], None, "compliance_only", False),
    ("done", False, ["  Compliance: no title"], None, "compliance_only", False),
    ("done", False, [COMPLIANCE], "skipped: no text", "compliance_only", False),
    ("done", False, [COMPLIANCE], "cancelled by user", "compliance_only", False),
    ("done", False, [COMPLIANCE, PIXEL], None, "fidelity", True),
    ("done", False, [PIXEL, COMPLIANCE], None, "fidelity", True),
    ("done", False, ["qpdf: object 12 0 has no endobj"], None, "fidelity", True),
    ("done", False, ["no compliance: no title"], None, "fidelity", True),
    ("done", False, ["something else"], None, "fidelity", True),
    ("done", False, [""], None, "fidelity", True),
    ("done", False, [], None, "fidelity", True),
    ("done", False, None, "skipped: no text", "fidelity", True),
    ("done", False, "compliance: no title", None, "compliance_only", False),
    ("done", False, [{"rule": "compliance:"}, 7, None], None, "fidelity", True),
    ("done", None, [], "skipped: no text", "not_taggable", True),
    ("done", None, [PIXEL], "skipped: ", "not_taggable", True),
    ("done", None, [], "skipped:no text", "pipeline_error", True),
    ("done", None, [], "Skipped: no text", "pipeline_error", True),
    ("done", None, [], " skipped: no text", "pipeline_error", True),
    ("done", None, [], "was skipped: no text", "pipeline_error", True),
    ("done", None, [], None, "pipeline_error", True),
    ("done", None, [], "", "pipeline_error", True),
    ("done", None, [COMPLIANCE], "worker lost", "pipeline_error", True),
    ("done", None, [], "cancelled by user", "pipeline_error", True),
    ("failed", None, [], None, "pipeline_error", True),
    ("failed", None, [], "stale: no heartbeat for 15 minutes", "pipeline_error", True),
    ("failed", None, [], "skipped: no text", "pipeline_error", True),
    ("failed", True, [], "worker lost", "pipeline_error", True),
    ("failed", False, [COMPLIANCE], "worker lost", "pipeline_error", True),
    ("failed", None, [], "job was not cancelled by user", "pipeline_error", True),
    ("failed", None, [], "CancelledError: task timed out", "pipeline_error", True),
    ("failed", None, [], "cancelled future", "pipeline_error", True),
    ("failed", None, [], "Canceled: deadline exceeded", "pipeline_error", True),
    ("failed", None, [], "cancelled: users could not be read", "pipeline_error", True),
    ("failed", None, [], "user cancelledness", "pipeline_error", True),
    ("failed", None, [], "files deleted: 3 temp", "pipeline_error", True),
    ("failed", None, [], "file deletedness", "pipeline_error", True),
    ("failed", None, [], "cancelled by user", "cancelled", False),
    ("failed", None, [], "Canceled by the user", "cancelled", False),
    ("failed", None, [], "user cancelled", "cancelled", False),
    ("failed", False, [PIXEL], "Job cancelled while processing", "cancelled", False),
    ("failed", None, [], "source deleted", "cancelled", False),
    ("failed", None, [], " Source file was deleted", "cancelled", False),
    ("failed", True, [], "file deleted by its owner", "cancelled", False),
    *(("failed", None, [], said, "cancelled", False) for said in STOPPED),
    *(("done", None, [], said, "pipeline_error", True) for said in STOPPED),
]  # fmt: skip


def flyer(status: str, passed: bool | None, failures: object, error: str | None) -> Any:
    return SimpleNamespace(status=status, passed=passed, failures=failures, error=error)


@pytest.mark.parametrize(("status", "passed", "failures", "error", "outcome", "refund"), SHAPES)
def test_each_shape_has_its_class(
    status: str, passed: bool | None, failures: object, error: str | None, outcome: str, refund: bool
) -> None:
    """R175: the six classes with their boundaries; the classes that are failures are told of, the other two are not."""
    verdict = FLYERS.verdict(flyer(status, passed, failures, error))
    assert classify(verdict).value == outcome
    assert classify(verdict).is_failure == (outcome not in ("success", "cancelled"))
    assert is_refundable(verdict) is refund


def test_the_table_knows_every_class() -> None:
    """R175: no class is without a shape."""
    assert {shape[4] for shape in SHAPES} == {outcome.value for outcome in OutcomeClass}


@pytest.mark.parametrize("passed", [True, False, None])
def test_whatever_a_row_holds_it_has_a_class(passed: bool | None) -> None:
    """R175: one class for any row, and it depends on nothing but status, verdict, failures and error."""
    values: list[Any] = [None, [], {}, "", 0, True, [PIXEL], [COMPLIANCE], [[COMPLIANCE]], {"a": 1}]
    errors = [None, "", "skipped: x", "cancelled by user", "x"]
    for status, failures, error in product(("done", "failed"), values, errors):
        verdict = FLYERS.verdict(flyer(status, passed, failures, error))
        outcome = classify(verdict)
        if outcome is OutcomeClass.SUCCESS:
            assert status == "done" and passed
        if outcome in (OutcomeClass.COMPLIANCE_ONLY, OutcomeClass.FIDELITY):
            assert status == "done" and passed is False
        if outcome is OutcomeClass.CANCELLED:
            assert status == "failed" and error == "cancelled by user"


@pytest.mark.parametrize(
    ("status", "passed", "failures", "error", "outcome"),
    [
        ("completed", True, [], None, "success"),
        ("completed", False, ["line: no_text", "line: no_text"], None, "compliance_only"),
        ("completed", False, ["line: no_text", "line: upstream"], None, "fidelity"),
        ("completed", None, [], "skipped: no lines", "not_taggable"),
        ("failed", None, [], "worker lease expired after maximum attempts", "pipeline_error"),
        ("failed", None, [], "transcription job exceeds configured segment limit", "pipeline_error"),
        ("canceled", None, [], "canceled with upload batch", "cancelled"),
        ("canceled", None, [], None, "cancelled"),
        ("superseded", None, [], "superseded by a newer transcription request", "cancelled"),
    ],
)
def test_transcription_jobs_have_the_same_classes(
    status: str, passed: bool | None, failures: list[str], error: str | None, outcome: str
) -> None:
    """R175: the statuses of the other family stand for the same shapes."""
    assert classify(JOBS.verdict(flyer(status, passed, failures, error))).value == outcome


def test_classes_and_refunds_follow_one_list_of_compliance_strings(monkeypatch: pytest.MonkeyPatch) -> None:
    """R176: what counts as compliance alone is said once; changing it changes class and refund alike."""
    verdict = Verdict(True, False, (COMPLIANCE, "outline: too long"), None)
    assert (classify(verdict), is_refundable(verdict)) == (OutcomeClass.FIDELITY, True)
    monkeypatch.setattr(predicates, "COMPLIANCE_ONLY", (*predicates.COMPLIANCE_ONLY, "outline:"))
    assert (classify(verdict), is_refundable(verdict)) == (OutcomeClass.COMPLIANCE_ONLY, False)
    monkeypatch.setattr(predicates, "COMPLIANCE_ONLY", ())
    assert (classify(verdict), is_refundable(verdict)) == (OutcomeClass.FIDELITY, True)


@pytest.mark.parametrize("name", ["CANCELLED", "SOURCE_DELETED"])
def test_classes_and_refunds_follow_one_list_of_cancellations(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """R176: the same for what counts as stopped by somebody."""
    verdict = Verdict(False, None, (), "withdrawn by its owner")
    assert (classify(verdict), is_refundable(verdict)) == (OutcomeClass.PIPELINE_ERROR, True)
    monkeypatch.setattr(predicates, name, ("withdrawn by",))
    assert (classify(verdict), is_refundable(verdict)) == (OutcomeClass.CANCELLED, False)


def test_classes_and_refunds_follow_one_list_of_what_counts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """R176: the same for words that count only if nothing follows."""
    monkeypatch.setattr(predicates, "CANCELLED_ALONE", ("withdrawn",))
    verdicts = [Verdict(False, None, (), said) for said in ("Withdrawn", "withdrawn: deadline exceeded")]
    assert [classify(verdict) for verdict in verdicts] == [OutcomeClass.CANCELLED, OutcomeClass.PIPELINE_ERROR]
    assert [is_refundable(verdict) for verdict in verdicts] == [False, True]


def test_what_is_matched_is_numbered() -> None:
    """R176: recorded facts say by which lists they were classified; whoever changes a list or the way it is matched raises this."""
    lists = (predicates.SKIPPED, predicates.COMPLIANCE_ONLY, predicates.CANCELLED, predicates.CANCELLED_ALONE)
    known = repr((*lists, predicates.SOURCE_DELETED, predicates.DEADLINES)).encode()
    assert (predicates.VERSION, hashlib.sha256(known).hexdigest()[:12]) == (2, "f4e5fffbc639")


def test_what_counts_as_skipped_is_said_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """R176: the same for what there was nothing to be done with."""
    monkeypatch.setattr(predicates, "SKIPPED", "left out: ")
    assert classify(Verdict(True, None, (), "left out: no text")) is OutcomeClass.NOT_TAGGABLE
    assert classify(Verdict(True, None, (), "skipped: no text")) is OutcomeClass.PIPELINE_ERROR


def test_no_other_module_knows_these_strings() -> None:
    """R176: the lists are in one module; the two others that have such a string write it into a row."""
    cancelled = (*predicates.CANCELLED, *predicates.SOURCE_DELETED)
    american = [said.replace("cancelled", "canceled") for said in cancelled]
    lists = (predicates.SKIPPED, *predicates.COMPLIANCE_ONLY, *cancelled, *american)
    found = {
        (str(path.relative_to(PACKAGE)), node.value)
        for path in sorted(PACKAGE.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lstrip().lower().startswith(lists)
    }
    own = {(module, value) for module, value in found if module == "outcomes/predicates.py"}
    assert {value for _, value in own} == {predicates.SKIPPED, *predicates.COMPLIANCE_ONLY, *cancelled}
    assert found - own == {("jobs/transcription.py", "skipped: no lines"), ("jobs/requests.py", "canceled by an operator")}
