"""Pages that a provider reads: what it is asked, once for each line, and what its answers and failures make of the job."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scribe_pipeline.engines import LineShape, crop_line, decode_upright, registry, tasks
from scribe_pipeline.engines.models import registered_models
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.jobs import TranscribedPage, TranscriptionSource, drain
from scribe_pipeline.metrics import Line, evaluate, read_ground_truth
from scribe_pipeline.pages import Image, load_head, plain_text, read_lines
from tests.conftest import SHARED
from tests.houses import FakeEngines, House, InlinePool, line_shape, png
from tests.providers import KEY, Asked, Fault, Provider, Rounds, registry_file
from tests.store.providing import PROMPT, context, everything_as_text
from tests.work import Work

LETTER = SHARED / "pages" / "letters" / "fra-hand-19c-boudreau-003.jpg"
FIVE_LINES = tuple(line_shape(20 + 50 * row) for row in range(5))
JOB = """SELECT status, error_category, attempt_count, total_segments, completed_segments, failed_segments, retry_after
         FROM transcription_jobs"""


@pytest.fixture(params=["gemini"])
def double(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Provider]:
    """A provider with its key, registered as `reader-1`; nothing is asked of it otherwise than its vendor documents."""
    with Provider(request.param) as provider:
        register(monkeypatch, tmp_path, provider.model(), provider.model(id="reader-2"))
        monkeypatch.setenv("TEST_PROVIDER_KEY", KEY)
        # the first line is alone until it is answered, however slow the machine is
        monkeypatch.setattr(tasks, "ALONE_SECONDS", 60)
        yield provider
        assert provider.refused == []


@pytest.fixture(autouse=True)
def _forgetful() -> Iterator[None]:
    yield
    forget()


def forget() -> None:
    """Have the registry and its engines read anew."""
    registered_models.cache_clear()
    registry.transcriber.cache_clear()


def register(monkeypatch: pytest.MonkeyPatch, folder: Path, *entries: dict[str, Any]) -> None:
    """Let these be the models there are."""
    monkeypatch.setenv("SCRIBE_MODELS_FILE", str(registry_file(folder, *entries)))
    forget()


def five_lines(house: House, double: Provider, max_attempts: int = 3, **values: Any) -> Image:
    """A page of five lines with a pending job for the provider."""
    context(house, double, **values)
    image = house.page(*FIVE_LINES)
    house.job(image, context="remote", max_attempts=max_attempts)
    return image


def transcribe(house: House) -> list[TranscribedPage]:
    """Work on what is due, whether or not it has to wait, and return what became of each attempt."""
    house.execute("UPDATE transcription_jobs SET retry_after = NULL WHERE status = 'pending'")
    pages: list[TranscribedPage] = []
    drain([TranscriptionSource(house.engine, house.store_url, 60, pages.append)], InlinePool(), 60, 60)
    return pages


def revisions(house: House) -> int:
    """How many the page has."""
    return int(house.value("SELECT max(revision) FROM annotation_page_revisions"))


@pytest.mark.parametrize("at_once", [1, 6])
def test_a_provider_that_is_down_is_asked_again_later(house: House, double: Provider, at_once: int) -> None:
    """R14, R20, R111: with 503 for every line each is asked once, the page waits twice as long each time, and the last fails it."""
    five_lines(house, double, max_attempts=4, line_concurrency=at_once)
    double.order(503, times=None)
    for attempt, seconds in enumerate((20, 40, 80), 1):
        assert [page.error_category for page in transcribe(house)] == [Category.UPSTREAM]
        (job,) = house.rows(JOB)
        assert (job.status, job.attempt_count, job.completed_segments, job.failed_segments) == ("pending", attempt, 0, 5)
        wait = house.value("SELECT extract(epoch FROM retry_after - updated_at) FROM transcription_jobs")
        assert abs(float(wait) - seconds) < 1
        assert len(double.requests) == 5 * attempt
    transcribe(house)
    (job,) = house.rows(JOB)
    assert (job.status, job.error_category, job.attempt_count, job.retry_after) == ("failed", "upstream", 4, None)
    outcomes = house.rows("SELECT outcome FROM transcription_job_attempts ORDER BY attempt_number")
    assert [row.outcome for row in outcomes] == ["retryable_failed"] * 3 + ["failed"]
    assert revisions(house) == 1 and len(double.requests) == 20


@pytest.mark.parametrize("at_once", [1, 6])
@pytest.mark.parametrize("read", [0, 2, 4])
def test_one_line_read_is_one_partial_commit(house: House, double: Provider, read: int, at_once: int) -> None:
    """R15, R16, R17, R18, R113, R114, R116: whichever it is, one revision and one event; no line is ever asked again."""
    five_lines(house, double, line_concurrency=at_once)
    failures: list[int | Fault] = [503, 429, Fault.CUT, 504]
    for kind in [*failures[:read], 200, *failures[read:]]:
        double.order(kind)
    transcribe(house)
    assert house.rows(JOB) == [("completed", None, 1, 5, 1, 4, None)]
    assert revisions(house) == 2
    (event,) = house.rows("SELECT body::jsonb -> 'data' AS data FROM event_outbox")
    assert (event.data["completedSegments"], event.data["failedSegments"], event.data["totalSegments"]) == (1, 4, 5)
    transcribe(house)
    assert len(double.requests) == 5


def test_a_line_that_is_cut_off_is_that_lines_failure(house: House, double: Provider) -> None:
    """R15, R18, R118: an answer that ends where no more tokens are left says nothing of the other lines; they are committed."""
    five_lines(house, double)
    double.order(200)
    double.order(Fault.CUT)
    transcribe(house)
    assert house.rows(JOB) == [("completed", None, 1, 5, 4, 1, None)]
    assert house.value("SELECT failures FROM transcription_jobs") == ["line: response_too_large"]


@pytest.mark.parametrize(("status", "category"), [(400, "invalid_request"), (401, "authentication"), (403, "authentication")])
@pytest.mark.parametrize("line", [1, 2])
def test_a_permanent_failure_ends_the_job(house: House, double: Provider, status: int, category: str, line: int) -> None:
    """R19, R118: no line after it is asked, nothing is committed, nothing tried again."""
    five_lines(house, double, line_concurrency=1)
    double.order(200, times=line - 1)
    double.order(status, times=None)
    transcribe(house)
    (job,) = house.rows(JOB)
    assert (job.status, job.error_category, job.attempt_count, job.retry_after) == ("failed", category, 1, None)
    transcribe(house)
    assert len(double.requests) == line and revisions(house) == 1


@pytest.mark.parametrize(
    ("first", "kind", "category"),
    [(kind, kind, "no_text") for kind in (Fault.BLANK, Fault.WHITE, Fault.REFUSED)]
    + [(Fault.CUT, Fault.CUT, "response_too_large"), (Fault.BLANK, Fault.CUT, "response_too_large")],
)
def test_a_page_on_which_nothing_is_read_fails(house: House, double: Provider, first: Fault, kind: Fault, category: str) -> None:
    """R111, R118: lines that are blank or cut off are asked one and all; a page of nothing else fails for good, and says why."""
    five_lines(house, double)
    double.order(first)
    double.order(kind, times=None)
    transcribe(house)
    (job,) = house.rows(JOB)
    assert (job.status, job.error_category, job.failed_segments) == ("failed", category, 5)
    assert len(double.requests) == 5


@pytest.mark.parametrize(
    ("said", "line"),
    [("x" * 4_001, Category.RESPONSE_TOO_LARGE), ("\u200b", Category.NO_TEXT), ("\u200e \u00ad\u2060", Category.NO_TEXT)],
    ids=["too long", "no width", "no letters"],
)
def test_a_line_that_is_no_line_is_that_lines_failure(house: House, double: Provider, said: str, line: Category) -> None:
    """R15, R18, R111: what goes on and on, and what nobody could see, is not stored; the page is committed with the others."""
    five_lines(house, double)
    double.says = lambda asked: said if asked.number == 2 else "x" * 4_000
    transcribe(house)
    assert house.rows(JOB) == [("completed", None, 1, 5, 4, 1, None)]
    head = house.value("SELECT payload FROM annotation_pages")
    assert sorted(len(one.text) for one in read_lines(head)) == [0, 4_000, 4_000, 4_000, 4_000]
    assert house.value("SELECT failures FROM transcription_jobs") == [f"line: {line.value}"]


def test_an_edited_context_is_the_next_jobs(house: House, double: Provider) -> None:
    """R99: edited between two attempts, it changes neither's requests: model, prompt, temperature are those of the job."""
    five_lines(house, double)
    double.order(503, times=5)
    transcribe(house)
    changed = "transcription_model = 'reader-2', system_prompt = 'another', temperature = 1, line_concurrency = 1"
    assert house.execute(f"UPDATE contexts SET {changed} WHERE name = 'remote'") == 1
    transcribe(house)
    assert house.rows(JOB) == [("completed", None, 2, 5, 5, 0, None)]
    asked = {(each.question.model, each.question.system, each.question.temperature) for each in double.asked}
    assert (len(double.asked), asked) == (10, {("reader-1", PROMPT, 0.25)})


@pytest.mark.parametrize("double", ["gemini", "openai", "glm-ocr", "ollama"], indirect=True)
def test_a_wrong_key_costs_one_call(
    house: House, double: Provider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R19, R21: the job fails at once, and the key stands in no log and no row of any table."""
    caplog.set_level(logging.DEBUG)
    wrong = "wrong-key-9876543210-zyxwvutsrq"
    monkeypatch.setenv("TEST_PROVIDER_KEY", wrong)
    five_lines(house, double)
    (page,) = transcribe(house)
    assert page.error_category is Category.AUTHENTICATION
    (job,) = house.rows(JOB)
    assert (job.status, job.error_category, job.attempt_count) == ("failed", "authentication", 1)
    assert house.value("SELECT error FROM transcription_jobs") == "transcription provider request failed"
    assert len(double.requests) == 1 and double.refused == ["wrong key"]
    double.refused.clear()
    logs = "\n".join(f"{record.getMessage()} {record.args} {record.exc_text}" for record in caplog.records)
    assert wrong not in everything_as_text(house) + logs + repr(page)


@pytest.mark.parametrize("double", ["gemini", "openai", "glm-ocr", "ollama"], indirect=True)
@pytest.mark.parametrize("status", [400, 503])
def test_a_providers_words_are_nowhere(house: House, double: Provider, status: int, caplog: pytest.LogCaptureFixture) -> None:
    """R21: its error tells key, address and prompt; no row, no event and no log has any of it."""
    caplog.set_level(logging.INFO)
    house.subscribe()
    five_lines(house, double, max_attempts=1)
    double.order(status, times=None)
    transcribe(house)
    assert house.value("SELECT status FROM transcription_jobs") == "failed"
    rows, logs = everything_as_text(house), "\n".join(record.getMessage() for record in caplog.records)
    for secret in (KEY, double.endpoint, "was asked"):
        assert secret not in rows + logs
    assert PROMPT not in logs + "".join(row.body for row in house.rows("SELECT body FROM event_outbox"))


def test_a_missing_key_fails_no_job(house: House, double: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """R19, R37: another worker may have it; the job goes back, and who works is told what to set."""
    monkeypatch.delenv("TEST_PROVIDER_KEY")
    forget()
    five_lines(house, double)
    with pytest.raises(Exception, match="set TEST_PROVIDER_KEY"):
        transcribe(house)
    assert house.value("SELECT status FROM transcription_jobs") == "pending"
    assert double.requests == []


def test_a_worker_without_the_registry_fails_no_job(house: House, double: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """R37, R166: a model that is registered elsewhere is no model that nobody has; whoever has the file reads the page."""
    five_lines(house, double)
    file = os.environ["SCRIBE_MODELS_FILE"]
    monkeypatch.delenv("SCRIBE_MODELS_FILE")
    forget()
    with pytest.raises(ScribeError, match=r"there is no more without SCRIBE_MODELS_FILE$") as caught:
        transcribe(house)
    assert caught.value.category is Category.UNAVAILABLE
    assert house.value("SELECT status FROM transcription_jobs") == "pending" and double.requests == []
    monkeypatch.setenv("SCRIBE_MODELS_FILE", file)
    forget()
    transcribe(house)
    assert house.value("SELECT status FROM transcription_jobs") == "completed"


def test_lines_are_found_without_the_key_and_read_without_the_segmentor(
    house: House, double: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """R156: neither of the two engines waits for the other one's worker."""
    found = FakeEngines(FIVE_LINES)
    monkeypatch.setattr("scribe_pipeline.engines.tasks.segmentor", found.segmentor)
    context(house, double)
    work = Work(house, house.batch({"a.png": png()}, tmp_path / "in", context="remote"))
    work.validate()
    monkeypatch.delenv("TEST_PROVIDER_KEY")
    work.segment()
    assert (house.rows("SELECT stage FROM item_image_stages"), found.segmented) == ([("transcribe",)], 1)
    monkeypatch.setenv("TEST_PROVIDER_KEY", KEY)
    monkeypatch.setattr("scribe_pipeline.engines.kraken_files.util.find_spec", lambda name: None)
    work.transcribe()
    assert house.rows("SELECT stage FROM item_image_stages") == [("review",)] and len(double.requests) == 5


def test_thirty_lines_are_six_rounds(house: House, double: Provider) -> None:
    """R18, R110: one line that is answered at once, then six together and never more; each is asked once."""
    context(house, double)
    shapes = [line_shape(5 + 36 * row, left, left + 90) for row in range(8) for left in (5, 105, 205, 305)][:30]
    house.job(house.page(*shapes), context="remote")
    # a reading comes back only when its round is complete, so that with fewer at once this would never end
    double.before = Rounds(30, 6)
    transcribe(house)
    assert house.rows(JOB) == [("completed", None, 1, 30, 30, 0, None)]
    assert [asked.at_once for asked in double.asked[:2]] == [1, 1]
    assert max(asked.at_once for asked in double.asked) == 6
    assert len(double.requests) == 30


@pytest.mark.parametrize("double", ["gemini", "openai", "glm-ocr", "ollama"], indirect=True)
def test_a_letter_is_read_as_the_provider_reads_it(house: House, double: Provider) -> None:
    """R89, R159, R161: each line's own pixels are sent once; with the truth for an answer, the stored page is the truth."""
    truth = [line for line in read_ground_truth(LETTER.with_suffix(".xml")) if line.text]
    shapes = [shape_of(line) for line in truth]
    page = np.asarray(decode_upright(LETTER.read_bytes()))
    texts = {crop_line(page, shape).tobytes(): line.text for shape, line in zip(shapes, truth, strict=True)}
    assert len(texts) == len(truth) > 10
    double.says = lambda asked: texts[asked.crop.tobytes()]
    context(house, double)
    image = house.page(*shapes, scan=LETTER)
    house.job(image, context="remote")
    transcribe(house)
    assert house.rows(JOB) == [("completed", None, 1, len(truth), len(truth), 0, None)]
    assert sorted(asked.crop.tobytes() for asked in double.asked) == sorted(texts)
    with house.engine.connect() as connection:
        head = load_head(connection, image.id)
    assert head is not None
    found = [Line(line.shape.polygon, line.text) for line in read_lines(head.payload)]
    score = evaluate(found, [Line(shape.polygon, line.text) for line, shape in zip(truth, shapes, strict=True)])
    assert (score.cer, score.recall) == (0, 1)
    assert plain_text(head.payload) == "".join(f"{' '.join(line.text.split())}\n" for line in truth)
    assert '"confidence"' not in head.payload


def shape_of(line: Any) -> LineShape:
    """The line in whole pixels; its baseline is the lower edge of its box."""
    polygon = tuple((round(x), round(y)) for x, y in line.polygon)
    left, right, bottom = min(x for x, _ in polygon), max(x for x, _ in polygon), max(y for _, y in polygon)
    return LineShape(((left, bottom), (right, bottom)), polygon)


def test_a_person_who_saves_meanwhile_wins(house: House, double: Provider) -> None:
    """R98: a save made while the provider reads the third line survives; the job fails as the page has changed."""
    image = five_lines(house, double)

    def says(asked: Asked) -> str:
        if asked.number == 3:
            house.save(image.id, 1, "by hand")
        return "by machine"

    double.says = says
    transcribe(house)
    (job,) = house.rows(JOB)
    assert (job.status, job.error_category) == ("failed", "page_changed")
    assert house.rows("SELECT revision, author_kind FROM annotation_page_revisions ORDER BY 1") == [(1, "ocr"), (2, "human")]
    with house.engine.connect() as connection:
        head = load_head(connection, image.id)
    assert head is not None and "by machine" not in head.payload
