"""Requests and what is told of them: batches, refusals, the report, what is due."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from scribe_pipeline.contexts import ContextSnapshot
from scribe_pipeline.engines import check_segmentor
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.ingest import (
    Batch,
    collect,
    due_batches,
    raise_generation,
    report_batch,
    request_batch,
    seconds_until_due,
    settle_batch,
)
from scribe_pipeline.ingest.claims import claim_file
from tests.houses import LIMITS, FakeEngines, House, line_shape, png
from tests.work import Work


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
        found.append(
            request_batch(house.engine, collection, workspace="default", context=None, max_attempts=3, reservation_seconds=3600)
        )

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
        request_batch(house.engine, collect([tmp_path / "a.png"]), max_attempts=3, reservation_seconds=3600, **wanted)
    assert caught.value.category is Category.INVALID_ARGUMENT
    assert house.value("SELECT count(*) FROM items") == 0


def test_a_batch_whose_context_does_not_pass_is_not_made(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R166: a check sees the context that will be used: the chosen one, or the one of a batch that is there and not over."""
    (tmp_path / "a.png").write_bytes(png())
    seen: list[ContextSnapshot] = []

    def refuse(context: ContextSnapshot) -> None:
        seen.append(context)
        raise ScribeError(Category.UNAVAILABLE, "no key")

    def request(**values: Any) -> Batch:
        wanted: dict[str, Any] = {"workspace": "default", "context": "letter", "max_attempts": 3, "reservation_seconds": 3600}
        return request_batch(house.engine, collect([tmp_path / "a.png"]), **wanted | values)

    empty = house.everything()
    with pytest.raises(ScribeError, match="no key"):
        request(check=refuse)
    assert house.everything() == empty
    batch = request()
    house.execute("UPDATE contexts SET transcription_model = 'other' WHERE name = 'letter'")
    with pytest.raises(ScribeError, match="no key"):
        request(check=refuse)
    assert [context.transcription_model for context in seen] == ["PP-OCRv6_rec_small"] * 2
    assert Work(house, batch).all().status == "completed"
    assert request(check=refuse).id == batch.id, "there is nothing left to read"
    with pytest.raises(ScribeError, match="no key"):
        request(check=refuse, again=True)
    assert seen[-1].transcription_model == "other"
    assert house.value("SELECT count(*) FROM ingest_batches") == 1


def test_what_a_new_database_holds(house: House) -> None:
    """R157: workspace `default` and three contexts, `letter` the default; newspapers are taken apart into columns."""
    rows = house.rows("SELECT name, is_default, segmentation_model, segment_cap FROM contexts ORDER BY name")
    assert [row[:2] for row in rows] == [("letter", True), ("manuscript", False), ("newspaper", False)]
    assert [row.segment_cap for row in rows] == [500, 500, 2000]
    assert [row.segmentation_model for row in rows] == ["kraken-blla", "kraken-blla", "kraken-blla-columns"]
    for row in rows:
        check_segmentor(row.segmentation_model)
    assert house.rows("SELECT name FROM workspaces") == [("default",)]


def test_bad_files_are_refused_before_any_model(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R87: each bad file gets its category and a sentence, no engine sees it, nothing of it is kept; the others go on."""
    files = {"good.png": png(), "empty.png": b"", "text.jpg": b"no picture", "cut.png": png(2000, 2000, colour="red")[:3000]}
    files["huge.png"] = png() + bytes(LIMITS.max_bytes)
    batch = house.batch(files, tmp_path)
    work = Work(house, batch)
    assert work.all().status == "completed"
    refused = {file.label: file.category for file in work.refused}
    assert refused == {
        "empty.png": Category.EMPTY,
        "text.jpg": Category.UNSUPPORTED_TYPE,
        "cut.png": Category.DAMAGED,
        "huge.png": Category.TOO_LARGE,
    }
    assert all(file.label in file.message and "\n" not in file.message for file in work.refused)
    assert engines.segmented == 1
    assert len(list(Path(house.store_url).iterdir())) == 1
    rows = house.rows("SELECT filename, status, error_category FROM ingest_batch_files ORDER BY sequence")
    assert rows[0] == ("good.png", "completed", None)
    assert [row.status for row in rows[1:]] == ["failed"] * 4
    assert house.value("SELECT count(*) FROM transcription_jobs") == 1, "what was refused is no job"


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
    batch = request_batch(
        house.engine, collect([folder]), workspace="default", context=None, max_attempts=3, reservation_seconds=3600
    )
    assert Work(house, batch).all().status == "completed"
    labels = {row.label for row in house.rows("SELECT label FROM item_images")}
    assert labels == {"caf\\udce9.png", "two\\nlines.png"}
