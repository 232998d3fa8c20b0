"""The facts of transcription jobs, for each way in which one can end, and of rows in which something is planted everywhere."""

import json
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.jobs import TranscriptionSource, cancel_job, claim_jobs, drain, end_attempt, request_job
from scribe_pipeline.jobs.queue import record_preflight
from scribe_pipeline.pages import Author, build_page, create_page
from tests.endings import JOBS, Endings
from tests.houses import FakeEngines, House, InlinePool, line_shape, png
from tests.store.facts import (
    EXAMPLES,
    KINDS,
    PERSONS,
    QUIET,
    check_kinds,
    check_planted,
    check_queries,
    planting_json,
    planting_texts,
)

SIZE = len(png())
OPERATOR = Operator("test")
BEFORE = {
    "pages": 1, "pages_source": "image", "width": 400, "height": 300, "bytes": SIZE, "media_type": "image/png",
    "segmentation_model": "kraken-blla", "segmentation_engine": "test", "provider": "local", "model": "PP-OCRv6_rec_small",
    "context": "letter", "origin": "single", "prior_attempts": 0, "notice": "none", "notice_attempts": 0, "notice_claimed_at": None,
    "predicates_version": 2,
}  # fmt: skip


def recorded(endings: Endings, job_id: UUID) -> tuple[str, dict[str, Any]]:
    """The class and the facts that a scan records of a job some minutes later, with every key and each of its kind."""
    endings.pass_time(300)
    endings.scan(QUIET)
    row = endings.outcome(job_id, JOBS)
    check_kinds(row.outcome_facts, KINDS[JOBS])
    return row.outcome_class, row.outcome_facts


def transcribed(endings: Endings, engines: FakeEngines, *said: str | Category) -> UUID:
    """A job that was worked on; the engine says this of its lines."""
    lines = [ScribeError(answer, "in the engine's words") if isinstance(answer, Category) else answer for answer in said]
    engines.answer = lambda number: lines[number - 1]
    shapes = [line_shape(20 + 50 * row) for row in range(len(said))]
    job = endings.house.job(endings.house.page(*shapes), max_attempts=1)
    work(endings.house)
    return job


def work(house: House) -> None:
    drain([TranscriptionSource(house.engine, house.store_url, 60, lambda _: None)], InlinePool(), 60, 60)


@pytest.mark.parametrize(
    ("said", "outcome", "counts", "failures", "category"),
    [
        (("one", "two"), "success", (2, 2, 0), [], None),
        (("one", "", " "), "compliance_only", (3, 1, 2), ["line: no_text"] * 2, None),
        (("one", "", Category.UPSTREAM), "fidelity", (3, 1, 2), ["line: no_text", "line: upstream"], None),
        (("", ""), "pipeline_error", (2, 0, 2), [], "no_text"),
        ((Category.UPSTREAM,), "pipeline_error", (1, 0, 1), [], "upstream"),
        (("one", Category.AUTHENTICATION), "pipeline_error", (2, 0, 0), [], "authentication"),
    ],
)
def test_each_result_has_its_class_and_facts(
    endings: Endings,
    engines: FakeEngines,
    said: tuple[str | Category, ...],
    outcome: str,
    counts: tuple[int, int, int],
    failures: list[str],
    category: str | None,
) -> None:
    """R170, R175, R212: what the lines of a page came to decides the class; the facts say how many there were of each kind."""
    job = transcribed(endings, engines, *said)
    given_class, facts = recorded(endings, job)
    row = endings.outcome(job, JOBS)
    assert given_class == outcome
    assert facts == BEFORE | {
        "segments": counts[0], "completed_segments": counts[1], "failed_segments": counts[2], "engine": row.preflight["engine"],
        "attempts": 1, "failures": failures, "error": row.error, "error_category": category,
        "duration_seconds": pytest.approx((row.finished_at - row.created_at).total_seconds(), abs=0.001),
    }  # fmt: skip
    assert (row.error is None) == (category is None)


def test_a_page_without_lines_is_not_taggable(endings: Endings, engines: FakeEngines) -> None:
    """R175: there was nothing to be done; the facts say so, and that the job was one of a batch."""
    endings.house.ingested(1, shapes=())
    work(endings.house)
    job = endings.house.value("SELECT id FROM transcription_jobs")
    given_class, facts = recorded(endings, job)
    assert (given_class, facts["segments"], facts["error"], facts["origin"]) == ("not_taggable", 0, "skipped: no lines", "batch")


@pytest.mark.parametrize("superseded", [False, True])
def test_a_job_that_somebody_stopped_is_cancelled(endings: Endings, superseded: bool) -> None:
    """R175, R217: canceled and superseded jobs are no failures; what nobody saw is null, the image's own facts are there."""
    image = endings.house.page()
    job = endings.house.job(image)
    if superseded:
        newer = request_job(endings.house.engine, image.id, "manuscript", 3, OPERATOR)
        assert newer.superseded == job
    else:
        cancel_job(endings.house.engine, job, OPERATOR)
    given_class, facts = recorded(endings, job)
    assert given_class == "cancelled"
    assert facts == BEFORE | {
        "segments": None, "completed_segments": 0, "failed_segments": 0, "engine": None, "attempts": 0, "failures": [],
        "error": endings.outcome(job, JOBS).error, "error_category": None, "duration_seconds": facts["duration_seconds"],
    }  # fmt: skip


def test_a_worker_that_vanished_after_preflight_leaves_its_facts(endings: Endings) -> None:
    """R217: a job whose worker was killed once it knew the page fails with the page's characteristics, the engine's among them."""
    job = endings.house.job(max_attempts=1)
    claim = endings.house.claim()
    seen = {"width": 401, "height": 301, "bytes": 7, "media_type": "image/tiff", "segments": 3, "engine": "fake 1.0"}
    record_preflight(endings.house.engine, claim, seen, 3)
    endings.house.expire_lease()
    assert claim_jobs(endings.house.engine, 60) == []
    given_class, facts = recorded(endings, job)
    assert (given_class, facts["error"]) == ("pipeline_error", "worker lease expired after maximum attempts")
    assert {name: facts[name] for name in seen} == seen
    assert (facts["error_category"], facts["attempts"]) == ("attempts_exhausted", 1)


def test_prior_attempts_are_earlier_jobs_on_the_same_image(endings: Endings) -> None:
    """R213: jobs on other images, and later ones, do not count."""
    house, image, jobs = endings.house, endings.house.page(), []
    for _ in range(3):
        jobs.append(house.job(image))
        end_attempt(house.engine, house.claim(), Category.AUTHENTICATION)
        endings.failed_job(60)
    assert [recorded(endings, job)[1]["prior_attempts"] for job in jobs] == [0, 1, 2]


@pytest.mark.parametrize(
    ("kind", "author", "expected"),
    [
        ("ocr", "kraken-blla 7.1.1", "kraken-blla 7.1.1"),
        ("ocr", "kraken of jane@example.org", "kraken of [email]"),
        ("import", "jane", None),
        ("reprocess", "jane", None),
    ],
)
def test_what_found_the_lines_is_told_of_every_job_of_the_page(
    endings: Endings, engines: FakeEngines, kind: str, author: str, expected: str | None
) -> None:
    """R212: also of a job on a page that another has transcribed; a page that somebody brought along has no such engine."""
    image = endings.house.image()
    with endings.house.engine.begin() as connection:
        create_page(connection, image, build_page(image, [line_shape(20)]), Author(kind, author))
    jobs = []
    for _ in range(2):
        jobs.append(endings.house.job(image))
        work(endings.house)
    told = [recorded(endings, job)[1] for job in jobs]
    assert [facts["segmentation_engine"] for facts in told] == [expected] * 2
    assert [facts["engine"] for facts in told] == [endings.outcome(job, JOBS).preflight["engine"] for job in jobs]


def test_a_page_that_somebody_brought_along_leaves_the_images_facts(endings: Endings) -> None:
    """R217: whoever wrote its first revision, what the image's row says is told of a job that never began."""
    image = endings.house.image()
    with endings.house.engine.begin() as connection:
        create_page(connection, image, build_page(image, [line_shape(20)]), Author("import", "jane"))
    job = endings.house.job(image)
    cancel_job(endings.house.engine, job, OPERATOR)
    assert recorded(endings, job)[1].items() >= {"bytes": SIZE, "media_type": "image/png", "segmentation_engine": None}.items()


def rewrite(endings: Endings, job: UUID, **columns: str | None) -> None:
    """Let a job that has ended, and its attempts, hold what nobody would write there, and its outcome not be recorded yet."""
    types = {"preflight": "jsonb", "failures": "jsonb"}
    written = ", ".join(f"{name} = CAST(:{name} AS {types.get(name, 'text')})" for name in columns)
    none = "outcome_class = NULL, outcome_facts = NULL, outcome_recorded_at = NULL"
    endings.unguarded(f"UPDATE transcription_jobs SET {written}, {none} WHERE id = :job", job=job, **columns)
    attempts = "UPDATE transcription_job_attempts SET context_snapshot = :snapshot WHERE job_id = :job"
    endings.unguarded(attempts, job=job, snapshot=columns["context_snapshot"])


MODELS = {
    "half a character": ('"\\ud83d"', None),
    "the other half": ('"PP-OCR\\ude00"', "PP-OCR"),
    "both halves": ('"PP-OCR\\ud83d\\ude00"', "PP-OCR\N{GRINNING FACE}"),
    "NUL": ('"PP-\\u0000OCR"', "PP-OCR"),
    "long": (json.dumps("PP-OCR " * 100), ("PP-OCR " * 100)[:119] + "…"),
    "large number": ("1e400", None),
    "long number": ("1" * 5000, None),
    "deep": ("[" * 1500 + "]" * 1500, None),
    "list": ('["a"]', None),
}


@pytest.mark.parametrize(("model", "expected"), MODELS.values(), ids=MODELS.keys())
def test_a_snapshot_that_jsonb_refuses_is_recorded(endings: Endings, model: str, expected: str | None) -> None:
    """R216, R220: snapshots are text; whatever JSON they hold, halves of characters and NUL too, the facts can be stored."""
    job = endings.failed_job()
    rewrite(endings, job, context_snapshot=f'{{"name": "letter", "transcription_model": {model}}}')
    given_class, facts = recorded(endings, job)
    assert (given_class, facts["model"]) == ("pipeline_error", expected)


NAMED = ("name", "segmentation_model", "transcription_provider", "transcription_model")
SEEN = ("width", "height", "bytes", "media_type", "segments", "engine", "provider", "model")


def rename(endings: Endings, job: UUID, label: str, item: str) -> tuple[UUID, ...]:
    """Let a job's image and item be called so, and return the ids of the job, the image and the workspace."""
    image = endings.house.image_of(job)
    endings.unguarded("UPDATE item_images SET label = :label WHERE id = :id", label=label, id=image)
    (row,) = endings.house.rows("SELECT item_id, workspace_id FROM item_images WHERE id = :id", id=image)
    endings.unguarded("UPDATE items SET name = :name WHERE id = :id", name=item, id=row.item_id)
    return job, image, row.workspace_id


@pytest.mark.parametrize("person", PERSONS)
def test_one_text_in_every_field_gets_nowhere(endings: Endings, person: str) -> None:
    """R211: the name of an item, a label, an id, an address, each of them written into all fields of a job at once."""
    job = endings.failed_job()
    label, item = f"{person}.png", f"{person}, letters"
    ids = rename(endings, job, label, item)
    planted = [person, label, item, *map(str, ids), "jane@example.org", "/home/jane/scan"]
    for text in planted:
        rewrite(
            endings, job, context_snapshot=json.dumps(dict.fromkeys(NAMED, text)), preflight=json.dumps(dict.fromkeys(SEEN, text)),
            failures=json.dumps([text, {text: [text]}]), error=text,
        )  # fmt: skip
        endings.scan(QUIET)
        facts = endings.outcome(job, JOBS).outcome_facts
        check_kinds(facts, KINDS[JOBS])
        check_planted(facts, planted)
        assert len(facts["failures"]) == 2 and facts["error"] and facts["engine"]


@st.composite
def plantings(draw: st.DrawFn, ids: tuple[UUID, ...]) -> tuple[dict[str, str | None], str, str, list[str]]:
    """Columns of a job, the names of its image and item, and what is planted in all of them."""
    person = draw(st.sampled_from(PERSONS))
    label, item = f"{person}.png", draw(st.sampled_from([person, f"{person}, letters", "letters of 1912"]))
    planted = [person, label, item, *map(str, ids), ids[0].hex, "jane@example.org", f"/home/{person}/scan", f"s3://scans/{label}"]
    texts = planting_texts(planted)
    anything = planting_json(texts)
    columns = {
        "context_snapshot": json.dumps(draw(st.fixed_dictionaries(dict.fromkeys(NAMED, texts | anything)))),
        "preflight": draw(st.none() | st.fixed_dictionaries(dict.fromkeys(SEEN, texts | anything)).map(json.dumps)),
        "failures": json.dumps(draw(st.lists(anything, max_size=25))),
        "error": draw(st.none() | texts),
    }
    return columns, label, item, planted


def test_nothing_of_a_person_gets_into_a_jobs_facts(endings: Endings) -> None:
    """R211, R212: whatever is planted in rows, snapshots and names, of whatever kind, the facts are stored without it."""
    job = endings.failed_job()
    ids = rename(endings, job, "label", "item")

    @EXAMPLES
    @given(plantings(ids))
    def check(planting: tuple[dict[str, str | None], str, str, list[str]]) -> None:
        columns, label, item, planted = planting
        rewrite(endings, job, **columns)
        rename(endings, job, label, item)
        endings.scan(QUIET)
        facts = endings.outcome(job, JOBS).outcome_facts
        check_kinds(facts, KINDS[JOBS])
        check_planted(facts, planted)
        check_queries(endings, JOBS)

    check()
