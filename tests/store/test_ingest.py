"""From files to drafts, with engines that answer at once: batches, claims, refusals, stages, and what an interruption leaves."""

import hashlib
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from scribe_pipeline.contexts import ContextSnapshot
from scribe_pipeline.database import DatabaseError
from scribe_pipeline.engines import check_segmentor
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.ingest import (
    Batch,
    RefusedFile,
    SegmentationSource,
    ValidationSource,
    collect,
    due_batches,
    raise_generation,
    report_batch,
    request_batch,
    seconds_until_due,
    settle_batch,
)
from scribe_pipeline.ingest.batches import FileClaim, GivenUp, claim_file
from scribe_pipeline.jobs import TranscribedPage, TranscriptionSource, drain
from scribe_pipeline.pages import check_page, load_image, read_lines
from scribe_pipeline.storage import open_store
from tests.houses import LIMITS, FakeEngines, House, InlinePool, line_shape, png


class Work:
    """The three stages of a batch, one after the other or alone, and what they told."""

    def __init__(self, house: House, batch: Batch) -> None:
        self.house = house
        self.batch = batch
        self.pool = InlinePool()
        self.refused: list[RefusedFile] = []
        self.transcribed: list[TranscribedPage] = []
        self._drop = lambda _: None

    def validate(self) -> None:
        """Files to images."""
        drain([ValidationSource(self.house.settings, self.batch.id, self._drop, self.refused.append)], self.pool, 60, 60)

    def segment(self) -> None:
        """Images to pages."""
        drain([SegmentationSource(self.house.settings, self.batch.id, self._drop, self.refused.append)], self.pool, 60, 60)

    def transcribe(self) -> None:
        """Pages to drafts."""
        source = TranscriptionSource(self.house.engine, self.house.store_url, 60, self.transcribed.append, self.batch.id)
        drain([source], self.pool, 60, 60)

    def all(self) -> Batch:
        """Everything."""
        self.validate()
        self.segment()
        self.transcribe()
        return settle_batch(self.house.engine, self.batch.id, self.batch.dispatch_generation)


def test_a_request_makes_one_item_and_its_images_in_order(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R85: files become one batch and one item, with an image for each in their order."""
    files = {f"scan {number}.png": png(colour=colour) for number, colour in enumerate(("red", "blue", "green"), start=1)}
    batch = house.batch(files, tmp_path)
    assert Work(house, batch).all().status == "completed"
    assert house.value("SELECT count(*) FROM items") == 1
    images = house.rows("SELECT label, sequence FROM item_images ORDER BY sequence")
    assert images == [("scan 1.png", 1), ("scan 2.png", 2), ("scan 3.png", 3)]


def test_nothing_to_ingest_is_refused(house: House, tmp_path: Path) -> None:
    """R85: a request without an image makes nothing."""
    (tmp_path / "empty").mkdir()
    with pytest.raises(ScribeError):
        collect([tmp_path / "empty"])
    assert house.value("SELECT count(*) FROM items") == 0


def test_the_same_files_are_the_same_batch(house: House, tmp_path: Path) -> None:
    """R94: the same request gives the batch there is; another context, other bytes or `again` give another."""
    files = {"a.png": png(), "b.png": png(colour="grey")}
    first = house.batch(files, tmp_path)
    assert house.batch(files, tmp_path / "elsewhere").id == first.id
    assert house.batch(files, tmp_path, context="newspaper").id != first.id
    assert house.batch(files | {"b.png": png(colour="black")}, tmp_path).id != first.id
    second = house.batch(files, tmp_path, again=True)
    assert second.id != first.id
    assert house.batch(files, tmp_path).id == second.id, "a plain request takes the newest"


def test_the_same_request_at_once_is_one_batch(house: House, tmp_path: Path) -> None:
    """R94: requests that race make one batch and one item."""
    (tmp_path / "a.png").write_bytes(png())
    collection = collect([tmp_path / "a.png"])
    found: list[Batch] = []

    def request() -> None:
        found.append(request_batch(house.engine, collection, workspace="default", context=None, max_attempts=3))

    threads = [threading.Thread(target=request) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len({batch.id for batch in found}) == 1
    assert house.value("SELECT count(*) FROM items") == 1


@pytest.mark.parametrize("unknown", [{"context": "diary"}, {"workspace": "nobody"}])
def test_unknown_names_are_refused(house: House, tmp_path: Path, unknown: dict[str, str]) -> None:
    """An unknown context or workspace makes nothing and says what there is."""
    (tmp_path / "a.png").write_bytes(png())
    wanted: dict[str, Any] = {"workspace": "default", "context": None} | unknown
    with pytest.raises(ScribeError, match=r"there are: (default|letter, manuscript, newspaper)") as caught:
        request_batch(house.engine, collect([tmp_path / "a.png"]), max_attempts=3, **wanted)
    assert caught.value.category is Category.INVALID_ARGUMENT
    assert house.value("SELECT count(*) FROM items") == 0


def test_what_a_new_database_holds(house: House) -> None:
    """R157: workspace `default` and three contexts, `letter` the default; all begin with Kraken's lines."""
    rows = house.rows("SELECT name, is_default, segmentation_model, segment_cap FROM contexts ORDER BY name")
    assert [row[:2] for row in rows] == [("letter", True), ("manuscript", False), ("newspaper", False)]
    assert [row.segment_cap for row in rows] == [500, 500, 2000]
    for row in rows:
        check_segmentor(row.segmentation_model)
        assert row.segmentation_model == "kraken-blla"
    assert house.rows("SELECT name FROM workspaces") == [("default",)]


def test_bad_files_are_refused_before_any_model(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R87: each bad file gets its category and a sentence, no engine sees it, nothing of it is kept; the others go on."""
    files = {"good.png": png(), "empty.png": b"", "text.jpg": b"no picture", "cut.png": png(2000, 2000, colour="red")[:3000]}
    files["huge.png"] = png() + bytes(LIMITS.max_bytes)
    batch = house.batch(files, tmp_path)
    work = Work(house, batch)
    assert work.all().status == "completed"
    refused = {file.filename: file.category for file in work.refused}
    assert refused == {
        "empty.png": Category.EMPTY,
        "text.jpg": Category.UNSUPPORTED_TYPE,
        "cut.png": Category.DAMAGED,
        "huge.png": Category.TOO_LARGE,
    }
    assert all(file.filename in file.message and "\n" not in file.message for file in work.refused)
    assert engines.segmented == 1
    assert len(list(Path(house.store_url).iterdir())) == 1
    rows = house.rows("SELECT filename, status, error_category FROM ingest_batch_files ORDER BY sequence")
    assert rows[0] == ("good.png", "completed", None)
    assert [row.status for row in rows[1:]] == ["failed"] * 4


def test_a_batch_of_bad_files_has_failed(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R87: if no page came of it, the batch has failed."""
    assert Work(house, house.batch({"a.png": b"", "b.png": b"x"}, tmp_path)).all().status == "failed"


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_a_file_that_is_not_what_was_declared(house: House, engines: FakeEngines, tmp_path: Path, change: str) -> None:
    """R87: a file that vanished or changed since it was named is refused, not taken for another."""
    batch = house.batch({"a.png": png()}, tmp_path)
    if change == "gone":
        (tmp_path / "a.png").unlink()
    else:
        (tmp_path / "a.png").write_bytes(png(colour="red"))
    work = Work(house, batch)
    work.validate()
    assert [file.category for file in work.refused] == [Category.UNREADABLE]
    assert house.value("SELECT count(*) FROM item_images") == 0


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
    """R87: the context's cap on lines is checked before a provider is called."""
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
    lost = source.claim()
    assert lost is not None
    house.expire_lease()
    # what a side copy could not know; no write of Scribe's changes a revision in its place
    house.execute("UPDATE annotation_pages SET payload = replace(payload, '20 390,20', '25 390,25'), revision = revision + 1")
    house.execute("ALTER TABLE annotation_pages DISABLE TRIGGER ALL")
    house.execute("ALTER TABLE annotation_page_revisions DISABLE TRIGGER ALL")
    house.execute("UPDATE annotation_pages SET revision = 1")
    house.execute("UPDATE annotation_page_revisions SET payload = (SELECT payload FROM annotation_pages)")
    again = source.claim()
    assert again is not None
    payload = house.value("SELECT payload FROM annotation_pages")
    assert again.arguments[-1] == tuple(line.shape for line in read_lines(payload))
    assert again.arguments[-1] != lost.arguments[-1]


def test_a_page_that_changed_before_the_claim_is_left_alone(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R162: a correction made before the worker came is never overwritten, and no provider is called for it."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    work.validate()
    work.segment()
    house.execute(
        """WITH head AS (UPDATE annotation_pages SET revision = 2 RETURNING *)
           INSERT INTO annotation_page_revisions (item_image_id, revision, workspace_id, payload, author_kind, author)
           SELECT item_image_id, 2, workspace_id, payload, 'human', 'reader' FROM head"""
    )
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


def test_the_next_claim_removes_what_a_dead_one_left(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R51: a worker killed while it stored a scan leaves neither a temporary nor an object that nobody refers to."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    dead = source.claim()
    assert dead is not None
    dead.task(*dead.arguments)
    folder = Path(house.store_url)
    (folder / f".scribe-upload-{work.batch.id}-1-1-left").write_bytes(b"half")
    (folder / f".scribe-upload-{work.batch.id}-11-1-other").write_bytes(b"half")
    left = {path.name for path in folder.iterdir()}
    house.expire_lease("ingest_batch_files")
    work.all()
    kept = {path.name for path in folder.iterdir()}
    assert len(left & kept) == 1, "only the other file's temporary is still there"
    assert house.value("SELECT object_key FROM item_images") in kept


def test_an_interrupted_claim_leaves_nothing(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R51: what an interrupted worker had stored is removed by the next claim, too."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    stopped = source.claim()
    assert stopped is not None
    stopped.task(*stopped.arguments)
    stopped.fail(Category.INTERRUPTED, "the run was interrupted")
    work.all()
    assert [path.name for path in Path(house.store_url).iterdir()] == [house.value("SELECT object_key FROM item_images")]


def test_a_late_file_worker_writes_nothing(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R10: a batch file is fenced like a job: after another claim the old one can neither finish nor fail nor renew."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    late = source.claim()
    assert late is not None
    result = late.task(*late.arguments)
    house.expire_lease("ingest_batch_files")
    assert source.claim() is not None
    assert not late.renew()
    for write in (lambda: late.finish(result), lambda: late.fail(Category.DAMAGED, "late")):
        with pytest.raises(ScribeError) as caught:
            write()
        assert caught.value.category is Category.LEASE_LOST
    assert house.value("SELECT count(*) FROM item_images") == 0
    assert house.value("SELECT status FROM ingest_batch_files") == "processing"


def test_a_file_whose_workers_vanish_is_given_up(house: House, tmp_path: Path) -> None:
    """R87: a file that kills every worker ends with a category instead of going round for ever."""
    batch = house.batch({"a.png": png()}, tmp_path)
    for _ in range(3):
        assert isinstance(claim_file(house.engine, batch.id, 60, stored=False), FileClaim)
        house.expire_lease("ingest_batch_files")
    assert isinstance(claim_file(house.engine, batch.id, 60, stored=False), GivenUp)
    assert house.rows("SELECT status, error_category, attempt_count FROM ingest_batch_files") == [
        ("failed", "attempts_exhausted", 3)
    ]


def test_engine_failures_give_a_file_back(
    house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R86: a segmentor that fails is tried again a little later; its file is not lost meanwhile."""
    monkeypatch.setattr(engines, "segment", lambda _: 1 / 0)
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    work.validate()
    work.segment()
    row = house.rows("SELECT status, attempt_count, retry_after, item_image_id FROM ingest_batch_files")[0]
    assert (row.status, row.attempt_count) == ("pending", 1)
    assert row.retry_after is not None
    assert row.item_image_id is not None


def test_interruption_gives_everything_back(
    house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R86: whoever is interrupted lets go of what it holds, so that the next run need not wait for the lease."""
    batch = house.batch({"a.png": png(), "b.png": png(colour="red")}, tmp_path)
    monkeypatch.setattr("scribe_pipeline.jobs.loop._watch", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        Work(house, batch).validate()
    assert house.rows("SELECT status FROM ingest_batch_files") == [("pending",), ("pending",)]


def test_settling_asks_for_another_run_once(house: House, tmp_path: Path) -> None:
    """A batch with work left gets its next run from whoever settles first; a batch that is over gets none."""
    batch = house.batch({"a.png": png()}, tmp_path)
    assert settle_batch(house.engine, batch.id, 0).dispatch_generation == 1
    assert settle_batch(house.engine, batch.id, 0).dispatch_generation == 1
    assert raise_generation(house.engine, batch.id, 1)
    assert not raise_generation(house.engine, batch.id, 1)


def test_due_batches(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """The sensor sees a batch while something of it is due: not while it is held, and not when it is over."""

    def due() -> list[Any]:
        with house.engine.connect() as connection:
            return [batch.id for batch in due_batches(connection, 10)]

    batch = house.batch({"a.png": png()}, tmp_path)
    assert due() == [batch.id]
    claim_file(house.engine, batch.id, 60, stored=False)
    assert due() == []
    with house.engine.connect() as connection:
        wait = seconds_until_due(connection, batch.id)
    assert wait is not None
    assert 50 < wait <= 60
    house.expire_lease("ingest_batch_files")
    assert due() == [batch.id]
    assert Work(house, batch).all().finished
    assert due() == []


def test_report_tells_of_every_file(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R86: what became of each file can be asked at any time."""
    engines.lines = (line_shape(20), line_shape(70))
    work = Work(house, house.batch({"a.png": png(), "b.png": b""}, tmp_path))
    work.all()
    with house.engine.connect() as connection:
        good, bad = report_batch(connection, work.batch.id)
    assert (good.file, good.status, good.revision, good.lines, good.failed_lines, good.mean_confidence, good.first_words) == (
        "a.png", "completed", 2, 2, 0, 0.5, "line 1",
    )  # fmt: skip
    assert (bad.file, bad.status, bad.error_category, bad.item_image_id) == ("b.png", "failed", "empty", None)


def test_snapshot_of_the_batch_is_the_jobs(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R2: the context is frozen when the files are named; an edit afterwards reaches neither row nor engine."""
    batch = house.batch({"a.png": png()}, tmp_path)
    house.execute("UPDATE contexts SET transcription_provider = 'other', transcription_model = 'x', segmentation_model = 'y'")
    Work(house, batch).all()
    frozen = ContextSnapshot.from_text(house.value("SELECT context_snapshot FROM transcription_jobs"))
    assert frozen.transcription_model == "PP-OCRv6_rec_small"
    assert engines.asked_for == [("kraken-blla",), ("local", "PP-OCRv6_rec_small")]


def test_one_refused_result_stops_nobody(
    house: House, engines: FakeEngines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R86: a page that cannot be written as it is fails by itself; its neighbours are done in their first attempt."""
    outside = (line_shape(20, right=4000),)
    monkeypatch.setattr(engines, "segment", lambda picture: outside if picture.getpixel((0, 0))[0] else engines.lines)
    work = Work(house, house.batch({"bad.png": png(colour="red"), "good.png": png(colour="black")}, tmp_path))
    work.all()
    bad, good = house.rows("SELECT status, attempt_count FROM ingest_batch_files ORDER BY sequence")
    assert good == ("completed", 1)
    assert bad == ("pending", 1)


def test_the_same_files_from_another_place(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R94: files that were moved before they were stored are read from where they were named last."""
    first = house.batch({"a.png": png()}, tmp_path / "usb")
    (tmp_path / "usb" / "a.png").unlink()
    again = house.batch({"a.png": png()}, tmp_path / "home")
    assert again.id == first.id
    assert Work(house, again).all().status == "completed"


def test_names_that_cannot_be_printed(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R85: a file whose name is no UTF-8 or holds control characters is taken; its name is shown with escapes."""
    folder = tmp_path / "in"
    folder.mkdir()
    for number, name in enumerate((b"caf\xe9.png", b"two\nlines.png")):
        Path(os.fsdecode(os.path.join(os.fsencode(folder), name))).write_bytes(png(colour=f"#0000{number:02x}"))
    batch = request_batch(house.engine, collect([folder]), workspace="default", context=None, max_attempts=3)
    assert Work(house, batch).all().status == "completed"
    labels = {row.label for row in house.rows("SELECT label FROM item_images")}
    assert labels == {"caf\\udce9.png", "two\\nlines.png"}


@pytest.mark.parametrize("end", ["refused", "vanished"])
def test_a_file_that_fails_for_good_leaves_nothing(house: House, engines: FakeEngines, tmp_path: Path, end: str) -> None:
    """R87: whatever its last claim had stored of it goes with it."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    house.execute("UPDATE ingest_batch_files SET max_attempts = 1")
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    unit = source.claim()
    assert unit is not None
    unit.task(*unit.arguments)
    assert len(list(Path(house.store_url).iterdir())) == 1
    if end == "refused":
        unit.fail(Category.DAMAGED, "a.png is damaged")
    else:
        house.expire_lease("ingest_batch_files")
        assert source.claim() is None
    assert list(Path(house.store_url).iterdir()) == []
    assert len(work.refused) == 1


def test_a_late_stored_scan_is_removed(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R10, R87: a worker that stores a scan after another has taken over removes it when its commit is refused."""
    work = Work(house, house.batch({"a.png": png()}, tmp_path))
    source = ValidationSource(house.settings, work.batch.id, lambda _: None, work.refused.append)
    late = source.claim()
    assert late is not None
    house.expire_lease("ingest_batch_files")
    winner = source.claim()
    assert winner is not None
    result = late.task(*late.arguments)
    winner.finish(winner.task(*winner.arguments))
    with pytest.raises(ScribeError):
        late.finish(result)
    assert [path.name for path in Path(house.store_url).iterdir()] == [house.value("SELECT object_key FROM item_images")]


def test_an_interrupt_costs_no_attempt(house: House, tmp_path: Path) -> None:
    """R86: who stops a run again and again does not use up the attempts of its files."""
    batch = house.batch({"a.png": png()}, tmp_path)
    source = ValidationSource(house.settings, batch.id, lambda _: None, lambda _: None)
    for _ in range(5):
        unit = source.claim()
        assert unit is not None
        unit.fail(Category.INTERRUPTED, "the run was interrupted")
    assert house.rows("SELECT status, attempt_count FROM ingest_batch_files") == [("pending", 0)]


def test_a_database_that_does_not_answer_loses_no_lease(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R86: a renewal that cannot reach the database is tried again; the work goes on."""
    calls: list[str] = []

    class Unit:
        task = staticmethod(time.sleep)
        arguments = (0.0,)

        def renew(self) -> bool:
            calls.append("renew")
            raise DatabaseError(Category.UNAVAILABLE, "the database does not answer")

        def progress(self, succeeded: int, failed: int) -> None:
            calls.append("progress")

        def finish(self, result: object) -> None:
            calls.append("finish")

        def fail(self, category: Category, message: str) -> None:
            calls.append("fail")

    units = [Unit()]

    class Source:
        def claim(self) -> Unit | None:
            return units.pop() if units else None

    drain([Source()], InlinePool(), 60, 60)
    assert calls == ["renew", "finish"]


def test_no_room_for_scans_stops_the_run_and_blames_no_page(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R87: when the store takes nothing, the run says so, and the files wait as if nobody had tried them."""
    batch = house.batch({"a.png": png(), "b.png": png(colour="red")}, tmp_path)
    Path(house.store_url).parent.mkdir(parents=True, exist_ok=True)
    Path(house.store_url).write_bytes(b"a file where the folder should be")
    with pytest.raises(ScribeError, match="for scans cannot be written to") as caught:
        Work(house, batch).validate()
    assert caught.value.category is Category.UNAVAILABLE
    assert house.rows("SELECT status, attempt_count FROM ingest_batch_files") == [("pending", 0), ("pending", 0)]
