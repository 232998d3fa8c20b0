"""From a stored scan to a draft, stage by stage, with engines that answer at once."""

import hashlib
from pathlib import Path

from scribe_pipeline.contexts import ContextSnapshot
from scribe_pipeline.jobs import TranscriptionSource
from scribe_pipeline.pages import check_page, load_image, read_lines
from scribe_pipeline.storage import open_store
from tests.houses import FakeEngines, House, png
from tests.work import Work


def test_stages_come_one_after_the_other(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R86: where an image stands can be asked at each step, and none is skipped."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    stages = "SELECT stage FROM item_image_stages"
    work.segment()
    work.transcribe()
    assert house.rows(stages) == []
    assert work.pool.calls == [], "no stage before its predecessor"
    work.validate()
    assert house.rows(stages) == [("segment",)]
    work.transcribe()
    assert house.rows(stages) == [("segment",)]
    work.segment()
    assert house.rows(stages) == [("transcribe",)]
    work.transcribe()
    assert house.rows(stages) == [("review",)]


def test_segmentation_gives_every_line_a_box_inside_the_image(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R88, R90: page revision 1 is valid, and its lines are where the segmentor found them, without text."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    work.validate()
    work.segment()
    row = house.rows("SELECT * FROM annotation_pages")[0]
    with house.engine.connect() as connection:
        image = load_image(connection, row.item_image_id)
    assert image is not None
    check_page(row.payload, image)
    lines = read_lines(row.payload)
    assert row.revision == 1
    assert tuple(line.shape for line in lines) == engines.lines
    assert all(line.text == "" and line.confidence is None for line in lines)
    assert house.rows("SELECT event_type FROM event_outbox") == [("dev.scribe.annotations.created",)]


def test_transcription_fills_every_line(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R89: the text of each line is what the provider said of its crop, cleaned."""
    engines.answer = lambda number: f"  line\n{number} "
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    work.all()
    lines = read_lines(house.value("SELECT payload FROM annotation_pages"))
    assert [line.text for line in lines] == ["line 1", "line 2", "line 3"]
    assert [line.confidence for line in lines] == [0.5] * 3
    assert [crop.shape[:2] for crop in engines.crops] == [(30, 380)] * 3


def test_a_failed_line_keeps_its_bytes(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R164: one partial result is committed, and the line that failed stays as it was."""
    engines.answer = lambda number: "" if number == 2 else "text"
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    work.all()
    before, after = (row[0] for row in house.rows("SELECT payload FROM annotation_page_revisions ORDER BY revision"))
    start = before.index('{"id":', before.index('{"id":', before.index('"items"')) + 1)
    assert before[start : before.index('{"id":', start + 1)] in after
    job = house.rows("SELECT status, total_segments, completed_segments, failed_segments, passed FROM transcription_jobs")[0]
    assert job == ("completed", 3, 2, 1, False)


def test_a_page_without_lines_is_a_draft(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R90: a page without lines completes without an engine call, with the reason."""
    engines.lines = ()
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    assert work.all().status == "completed"
    assert house.rows("SELECT status, passed, error, total_segments, result_revision FROM transcription_jobs") == [
        ("completed", None, "skipped: no lines", 0, 2)
    ]
    assert "transcribe" not in work.pool.calls


def test_too_many_lines_fail_before_any_engine(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R87, R110: the context's cap on lines is checked before a provider is called."""
    house.execute("UPDATE contexts SET segment_cap = 2")
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    work.all()
    assert house.rows("SELECT status, error_category FROM transcription_jobs") == [("failed", "too_many_segments")]
    assert engines.crops == []


def test_all_blank_is_permanent_and_all_failing_is_retried(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R164: with no line read, blank answers end the job, failures that may pass send it back to pending."""
    engines.answer = lambda _: ""
    Work(house, house.batch({"a.png": png()}, tmp_path)).all()
    job = house.rows("SELECT status, error_category, total_segments, completed_segments, failed_segments FROM transcription_jobs")[
        0
    ]
    assert job == ("failed", "no_text", 3, 0, 3)
    engines.answer = lambda _: RuntimeError("boom")
    second = house.batch({"a.png": png(colour="red")}, tmp_path)
    Work(house, second).all()
    job = house.rows("SELECT status, attempt_count, retry_after FROM transcription_jobs WHERE batch_id = :id", id=second.id)[0]
    assert (job.status, job.attempt_count) == ("pending", 1)
    assert job.retry_after is not None
    assert house.value("SELECT max(revision) FROM annotation_pages") == 1


def test_a_retry_reads_the_canonical_page_again(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R164, R162: an attempt works on the committed page at the job's input revision, on nothing that was kept aside."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    work.validate()
    work.segment()
    source = TranscriptionSource(house.engine, house.store_url, 60, work.transcribed.append, work.batch.id)
    (lost,) = source.claim(1)
    house.expire_lease()
    # what a side copy could not know; no write of Scribe's changes a revision in its place
    house.execute("UPDATE annotation_pages SET payload = replace(payload, '20 390,20', '25 390,25'), revision = revision + 1")
    house.execute("ALTER TABLE annotation_pages DISABLE TRIGGER ALL")
    house.execute("ALTER TABLE annotation_page_revisions DISABLE TRIGGER ALL")
    house.execute("UPDATE annotation_pages SET revision = 1")
    house.execute("UPDATE annotation_page_revisions SET payload = (SELECT payload FROM annotation_pages)")
    (again,) = source.claim(1)
    payload = house.value("SELECT payload FROM annotation_pages")
    assert again.arguments[-1] == tuple(line.shape for line in read_lines(payload))
    assert again.arguments[-1] != lost.arguments[-1]


def test_a_page_that_changed_before_the_claim_is_left_alone(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R162: a correction made before the worker came is never overwritten, and no provider is called for it."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    work.validate()
    work.segment()
    house.save(house.value("SELECT item_image_id FROM annotation_pages"), 1)
    work.transcribe()
    assert house.rows("SELECT status, error_category FROM transcription_jobs") == [("failed", "page_changed")]
    assert engines.crops == []


def test_stored_object_is_named_after_its_bytes(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R51: the server makes the name from the bytes; the client's name has no part in it."""
    data = png()
    Work(house, house.batch({"../odd name.png": data}, tmp_path / "in")).all()
    key = house.value("SELECT object_key FROM item_images")
    assert key.startswith(hashlib.sha256(data).hexdigest() + "-")
    assert key.endswith(".png")
    assert open_store(house.store_url).read(key) == data


def test_snapshot_of_the_batch_is_the_jobs(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R2: the context is frozen when the files are named; an edit afterwards reaches neither row nor engine."""
    batch = house.batch({"a.png": png()}, tmp_path)
    house.execute("UPDATE contexts SET transcription_provider = 'other', transcription_model = 'x', segmentation_model = 'y'")
    Work(house, batch).all()
    frozen = ContextSnapshot.from_text(house.value("SELECT context_snapshot FROM transcription_jobs"))
    assert frozen.transcription_model == "PP-OCRv6_rec_small"
    assert engines.asked_for == [("kraken-blla",), ("local", "PP-OCRv6_rec_small")]
