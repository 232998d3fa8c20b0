"""What the lines of a page decide about the page: one commit if any was read, a retry only if none was, an end at once if asked."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from scribe_pipeline.database import dump_json
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.jobs import TranscribedPage, TranscriptionSource, cancel_job, drain
from tests.houses import FakeEngines, House, InlinePool, line_shape

JOB = "SELECT status, error_category, total_segments, completed_segments, failed_segments, retry_after FROM transcription_jobs"


def transcribe(house: House) -> list[TranscribedPage]:
    """Work on what is due, and return what became of each attempt."""
    pages: list[TranscribedPage] = []
    drain([TranscriptionSource(house.engine, house.store_url, 60, pages.append)], InlinePool(), 60, 60)
    return pages


def failing(*categories: Category | None) -> Callable[[int], Any]:
    """An engine whose n-th line fails with the n-th category; None is read."""
    return lambda number: "text" if (said := categories[number - 1]) is None else ScribeError(said, "in the provider's words")


def five_lines(house: House) -> None:
    """A pending job for a page of five lines."""
    house.job(house.page(*(line_shape(20 + 50 * row) for row in range(5))))


def test_one_line_read_is_one_partial_commit(house: House, engines: FakeEngines) -> None:
    """R15, R16, R17, R18, R113, R114, R116: one of five lines read is one commit; the rest is counted and never asked again."""
    five_lines(house)
    engines.answer = failing(Category.UPSTREAM, Category.TIMEOUT, None, Category.UPSTREAM, Category.RATE_LIMITED)
    transcribe(house)
    assert house.rows(JOB) == [("completed", None, 5, 1, 4, None)]
    assert house.value("SELECT max(revision) FROM annotation_page_revisions") == 2
    (event,) = house.rows("SELECT body::jsonb -> 'data' AS data FROM event_outbox")
    assert (event.data["completedSegments"], event.data["failedSegments"], event.data["totalSegments"]) == (1, 4, 5)
    assert house.value("SELECT failures FROM transcription_jobs") == [
        "line: rate_limited", "line: timeout", "line: upstream", "line: upstream"
    ]  # fmt: skip
    transcribe(house)
    assert len(engines.crops) == 5


def test_every_line_is_tried_before_the_page_is_retried(house: House, engines: FakeEngines) -> None:
    """R14, R111: with the first line failing, the others are asked once each; with all failing, the page waits for a retry."""
    five_lines(house)
    engines.answer = failing(*[Category.UPSTREAM] * 5)
    transcribe(house)
    assert len(engines.crops) == 5
    (job,) = house.rows(JOB)
    assert (job.status, job.failed_segments) == ("pending", 5)
    assert job.retry_after is not None
    assert house.value("SELECT outcome FROM transcription_job_attempts") == "retryable_failed"


def test_unknown_failures_may_pass(house: House, engines: FakeEngines) -> None:
    """R112: whatever an engine raises that nobody knows counts as a failure that may pass."""
    five_lines(house)
    engines.answer = lambda _: ZeroDivisionError("out of the blue")
    transcribe(house)
    assert house.rows("SELECT status, attempt_count FROM transcription_jobs") == [("pending", 1)]
    assert len(engines.crops) == 5


@pytest.mark.parametrize("category", [Category.AUTHENTICATION, Category.INVALID_REQUEST, Category.INVALID_RESPONSE])
def test_a_permanent_failure_stops_at_once(house: House, engines: FakeEngines, category: Category) -> None:
    """R19, R118: after a permanent failure of line two, lines three to five are not asked, and line one is not committed."""
    five_lines(house)
    engines.answer = failing(None, category)
    transcribe(house)
    assert len(engines.crops) == 2
    assert house.rows("SELECT status, error_category, attempt_count FROM transcription_jobs") == [("failed", category.value, 1)]
    assert house.value("SELECT max(revision) FROM annotation_page_revisions") == 1


def test_a_canceled_call_stops_at_once(house: House, engines: FakeEngines) -> None:
    """R117: an engine that was canceled ends the attempt between lines; nothing is committed, and the job is due soon."""
    five_lines(house)
    engines.answer = failing(None, Category.CANCELED)
    transcribe(house)
    assert len(engines.crops) == 2
    assert house.rows("SELECT status, error_category FROM transcription_jobs") == [("pending", None)]
    assert house.value("SELECT max(revision) FROM annotation_page_revisions") == 1


def test_a_canceled_job_commits_nothing(house: House, engines: FakeEngines) -> None:
    """R117, R120: a job canceled while its second line is read stays canceled; what was read is dropped."""
    five_lines(house)

    def answer(number: int) -> str:
        if number == 2:
            cancel_job(house.engine, house.value("SELECT id FROM transcription_jobs"), Operator("test"))
        return "text"

    engines.answer = answer
    assert transcribe(house) == []
    assert house.rows("SELECT status, completed_segments FROM transcription_jobs") == [("canceled", 0)]
    assert house.value("SELECT max(revision) FROM annotation_page_revisions") == 1
    assert house.rows("SELECT event_type FROM event_outbox") == [("dev.scribe.transcription.canceled",)]


def test_failed_lines_keep_their_bytes(house: House, engines: FakeEngines) -> None:
    """R115: a failed line, its words and what nobody knows of them stay as they were, byte for byte and in their order."""
    image = house.page()
    page = json.loads(house.value("SELECT payload FROM annotation_pages"))
    line = page["items"][1]
    word = line | {"id": f"{line['id']}-w", "textGranularity": "word", "x:weight": [1.50, 2e3, None], "zeta": {"b": 1, "a": "ſ"}}
    page["items"] = [page["items"][0], line | {"x:hand": "B", "body": line["body"] | {"value": "old"}}, word, page["items"][2]]
    house.save_payload(image.id, 1, json.dumps(page))
    house.job(image)
    before = house.value("SELECT payload FROM annotation_pages")
    engines.answer = failing(None, Category.UPSTREAM, None)
    transcribe(house)
    after = house.value("SELECT payload FROM annotation_pages")
    assert house.value("SELECT revision FROM annotation_pages") == 3
    items = json.loads(before)["items"]
    assert f",{dump_json(items[1])},{dump_json(items[2])}," in after
    assert [item["body"]["value"] for item in json.loads(after)["items"]] == ["text", "old", "", "text"]


def test_an_edited_context_reaches_no_attempt(house: House, engines: FakeEngines) -> None:
    """R2, R99: an edit between two attempts reaches neither: both ask the provider for the same model."""
    house.job()
    engines.answer = lambda number: ScribeError(Category.UPSTREAM, "busy") if number <= 3 else "text"
    transcribe(house)
    house.execute("UPDATE contexts SET transcription_provider = 'other', transcription_model = 'x', temperature = 2")
    house.execute("UPDATE transcription_jobs SET retry_after = NULL")
    transcribe(house)
    assert house.value("SELECT status FROM transcription_jobs") == "completed"
    assert engines.asked_for == [("local", "PP-OCRv6_rec_small")] * 2


SECRETS = ("sk-0123456789abcdef", "https://provider.example/v1?key=abc", "Transcribe the line exactly")


@pytest.mark.parametrize("category", [Category.UPSTREAM, Category.AUTHENTICATION, None])
def test_a_providers_words_are_stored_nowhere(
    house: House,
    engines: FakeEngines,
    category: Category | None,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """R21: key, address and prompt in an error's text get into no row, event, delivery or log; the reason is of a closed list."""
    caplog.set_level(logging.DEBUG)
    house.subscribe()
    house.job(max_attempts=1)
    words = " ".join(SECRETS)
    engines.answer = lambda _: RuntimeError(words) if category is None else ScribeError(category, words)
    transcribe(house)
    assert house.value("SELECT error FROM transcription_jobs") in (
        "transcription provider request failed", "transcription attempt failed"
    )  # fmt: skip
    tables = ("transcription_jobs", "transcription_job_attempts", "event_outbox", "webhook_deliveries", "annotation_pages")
    written = " ".join(str(house.rows(f"SELECT {table}::text FROM {table}")) for table in tables)
    out, err = capfd.readouterr()
    for secret in SECRETS:
        assert secret not in written + caplog.text + out + err


def test_an_engine_that_breaks_tells_the_log_no_words(
    house: House, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R21: what a worker process raises as a whole is logged by its kind alone."""

    def broken(*_: object) -> None:
        raise RuntimeError(" ".join(SECRETS))

    monkeypatch.setattr("scribe_pipeline.engines.tasks.transcriber", broken)
    house.job()
    transcribe(house)
    assert "RuntimeError" in caplog.text
    assert not any(secret in caplog.text for secret in SECRETS)
    assert house.rows("SELECT status, attempt_count FROM transcription_jobs") == [("pending", 1)]
