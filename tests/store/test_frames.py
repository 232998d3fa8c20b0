"""Files of several pages: each page is a row, an image and a draft of its own, and none is lost on the way."""

import hashlib
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from lxml import etree
from PIL import Image as Picture

from scribe_pipeline.engines import Tiff
from scribe_pipeline.errors import Category
from scribe_pipeline.events import Operator
from scribe_pipeline.exports import write_exports
from scribe_pipeline.ingest import ValidationSource, cancel_batch, list_batches, report_batch, settle_batch
from scribe_pipeline.ingest.work import ValidationUnit
from scribe_pipeline.storage import open_store
from tests.houses import LIMITS, FakeEngines, House, png, stopped_after
from tests.work import Work

ROWS = "SELECT frame, status, error_category FROM ingest_batch_files ORDER BY sequence, frame"


def tiff(pages: int = 3, damaged: int | None = None) -> bytes:
    """A TIFF of even pictures; of the damaged one, counted from 1, a part is overwritten."""
    out = io.BytesIO()
    first, *rest = (Picture.new("RGB", (400, 300), (200, number, 0)) for number in range(pages))
    first.save(out, "TIFF", save_all=True, append_images=rest, compression="tiff_lzw")
    data = bytearray(out.getvalue())
    if damaged is not None:
        with Picture.open(io.BytesIO(data)) as picture:
            picture.seek(damaged - 1)
            at = picture.tag_v2[273][0]
        data[at : at + 60] = b"\xff" * 60
    return bytes(data)


def unowned(house: House) -> set[str]:
    """Files of the blob store that no row knows."""
    owned = house.rows("SELECT object_key FROM item_images UNION SELECT resource_key FROM resource_cleanup_outbox")
    folder = Path(house.store_url)
    return {path.name for path in folder.iterdir()} - {row[0] for row in owned} if folder.exists() else set()


def source_of(work: Work, heard: list[int] | None = None) -> ValidationSource:
    heard = [] if heard is None else heard
    return ValidationSource(work.house.settings, work.batch.id, lambda _: None, work.refused.append, heard.append)


def claimed(work: Work) -> ValidationUnit:
    (unit,) = source_of(work).claim(1)
    return unit


def finished(work: Work) -> None:
    unit = claimed(work)
    unit.finish(unit.task(*unit.arguments))


def test_each_page_is_an_image_and_a_draft(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R85, R86: the first page's object is the file itself; each other page has one of its own; tables tell them apart."""
    data = tiff(3)
    work = Work(house, house.batch({"a.png": png(), "x.tif": data, "z.png": png(colour="red")}, tmp_path))
    assert work.all().status == "completed"
    rows = house.rows("SELECT sequence, frame, label, sha256, object_key, storage_bytes FROM item_images ORDER BY sequence, frame")
    assert [row[:3] for row in rows] == [
        (1, 1, "a.png"), (2, 1, "x.tif"), (2, 2, "x.tif (2)"), (2, 3, "x.tif (3)"), (3, 1, "z.png"),
    ]  # fmt: skip
    for row in rows[1:4]:
        page = data if row.frame == 1 else Tiff(data).page(row.frame)
        assert row.sha256 == hashlib.sha256(page).hexdigest() and row.storage_bytes == len(page)
        assert row.object_key.endswith(".tiff") and open_store(house.store_url).read(row.object_key) == page
    assert unowned(house) == set()
    seen = {crop[5, 5, 1] for crop in engines.crops}
    assert seen == {255, 0, 1, 2}, "each page is read, not the first one three times"
    with house.engine.connect() as connection:
        report = report_batch(connection, work.batch.id)
        assert [listed.files for listed in list_batches(connection)] == [3]
    assert [page.label for page in report] == ["a.png", "x.tif", "x.tif (2)", "x.tif (3)", "z.png"]
    assert [(page.file, page.frame, page.status) for page in report[1:4]] == [("x.tif", n, "completed") for n in (1, 2, 3)]


def test_exports_are_named_after_the_file_and_the_page(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R163: further pages are NAME-2 and so on, beside another file of that name, too; and each export names the file itself."""
    work = Work(house, house.batch({"x.png": png(), "x.tif": tiff(3)}, tmp_path))
    assert work.all().status == "completed"
    heads = {row.item_image_id: 2 for row in house.rows("SELECT item_image_id FROM annotation_pages WHERE revision = 2")}
    out = tmp_path / "out"
    written = {path.name for path in write_exports(house.engine, out, heads)}
    for stem, file in (("x.png", "x.png"), ("x.tif", "x.tif"), ("x.tif-2", "x.tif"), ("x.tif-3", "x.tif")):
        names = {f"{stem}.{extension}" for extension in ("alto.xml", "page.xml", "hocr", "txt", "json")}
        assert names <= written
        written -= names
        assert etree.parse(out / f"{stem}.page.xml").find(".//{*}Page").get("imageFilename") == file
        assert etree.parse(out / f"{stem}.alto.xml").findtext(".//{*}fileName") == file
        assert f'image "{file}";' in etree.parse(out / f"{stem}.hocr").find(".//*[@class='ocr_page']").get("title")
    assert written == set()


@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_a_damaged_page_is_refused_alone(house: House, engines: FakeEngines, tmp_path: Path, damaged: int) -> None:
    """R87: one sentence names the file and the page; the other pages become drafts, also behind a damaged first one."""
    work = Work(house, house.batch({"x.tif": tiff(3, damaged)}, tmp_path))
    assert work.all().status == "completed"
    assert [(file.category, file.message) for file in work.refused] == [
        (Category.DAMAGED, f"x.tif, page {damaged}, is damaged: its picture cannot be decoded to the end")
    ]
    assert house.rows(ROWS) == [(n, "failed", "damaged") if n == damaged else (n, "completed", None) for n in (1, 2, 3)]
    assert unowned(house) == set()


def test_a_page_that_is_not_in_its_file_is_refused(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R87: a file may say that there is another page and have none."""
    data = tiff(2)
    with Picture.open(io.BytesIO(data)) as picture:
        picture.seek(1)
        place = picture.tag_v2.offset
    pointer = place.to_bytes(4, "little")
    assert data.count(pointer) == 1
    work = Work(house, house.batch({"x.tif": data.replace(pointer, (3).to_bytes(4, "little"))}, tmp_path))
    assert work.all().status == "completed"
    assert [file.label for file in work.refused] == ["x.tif (2)"]
    assert work.refused[0].message.startswith("x.tif, page 2, is damaged: ")


def test_pages_are_there_as_soon_as_the_first_one_is(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R86: whoever takes over from a worker that died after the first page finds the others; the batch is not over before."""
    work = Work(house, house.batch({"x.tif": tiff(3)}, tmp_path))
    finished(work)
    assert house.rows(ROWS) == [(1, "pending", None), (2, "pending", None), (3, "pending", None)]
    work.segment()
    work.transcribe()
    assert settle_batch(house.engine, work.batch.id, 0).status == "pending"
    assert Work(house, work.batch).all().status == "completed"
    assert house.value("SELECT count(*) FROM annotation_pages WHERE revision = 2") == 3


@pytest.mark.parametrize(
    ("damaged", "statement"),
    [
        (None, "UPDATE ingest_batch_files"),
        (None, "INSERT INTO item_images"),
        (None, "INSERT INTO ingest_batch_files"),
        (1, "UPDATE ingest_batch_files"),
        (1, "INSERT INTO ingest_batch_files"),
    ],
)
def test_the_first_page_and_the_others_come_together(
    house: House, engines: FakeEngines, tmp_path: Path, statement: str, damaged: int | None
) -> None:
    """R86: if the first page's transaction stops on its way, none of it has happened."""
    work = Work(house, house.batch({"x.tif": tiff(3, damaged)}, tmp_path))
    unit = claimed(work)
    result = unit.task(*unit.arguments)
    with stopped_after(house.engine, statement):
        unit.finish(result)
    assert house.rows(ROWS) == [(1, "processing", None)]
    assert house.value("SELECT count(*) FROM item_images") == 0
    house.expire_lease("ingest_batch_files")
    assert work.all().status == "completed"
    assert len(house.rows(ROWS)) == 3 and unowned(house) == set()


def test_what_a_dead_worker_stored_of_a_page_is_removed(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R51, R87: a page's object is known before it is written, like any other's."""
    work = Work(house, house.batch({"x.tif": tiff(2)}, tmp_path))
    finished(work)
    dead = claimed(work)
    dead.task(*dead.arguments)
    before = {path.name for path in Path(house.store_url).iterdir()}
    house.expire_lease("ingest_batch_files")
    assert work.all().status == "completed"
    assert len(before - {path.name for path in Path(house.store_url).iterdir()}) == 1


def test_a_page_whose_workers_vanish_is_given_up_by_its_number(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R87: a page that kills every worker ends; the sentence says which page."""
    work = Work(house, house.batch({"x.tif": tiff(2)}, tmp_path))
    finished(work)
    for _ in range(3):
        claimed(work)
        house.expire_lease("ingest_batch_files")
    work.all()
    assert [(file.label, file.message) for file in work.refused] == [
        ("x.tif (2)", "x.tif, page 2, was given up: its worker vanished 3 times")
    ]


@pytest.mark.parametrize("end", ["vanished", "crashed"])
@pytest.mark.parametrize("name", ["x.tif", "x.png"])
def test_a_first_page_without_a_result_says_that_nobody_saw_the_others(
    house: House, engines: FakeEngines, tmp_path: Path, name: str, end: str
) -> None:
    """R87: a TIFF whose first page ends every worker may have more pages, and the sentence does not hide it."""
    work = Work(house, house.batch({name: tiff(3) if name == "x.tif" else png()}, tmp_path))
    house.execute("UPDATE ingest_batch_files SET max_attempts = 1")
    unit = claimed(work)
    if end == "crashed":
        unit.fail(Category.UNCLASSIFIED, "its worker process ended")
    else:
        house.expire_lease("ingest_batch_files")
        work.all()
    why = {"vanished": f"{name} was given up: its worker vanished 1 times", "crashed": "its worker process ended"}[end]
    others = "; its other pages, if it has any, were not looked at" if name == "x.tif" else ""
    assert [file.message for file in work.refused] == [f"{why}{others}"]
    assert house.value("SELECT error FROM ingest_batch_files") == f"{why}{others}"


def test_a_first_page_that_is_stored_hides_no_others(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R87: its segmentation may end every worker: the other pages are known by then."""
    work = Work(house, house.batch({"x.tif": tiff(2)}, tmp_path))
    finished(work)
    house.execute("UPDATE ingest_batch_files SET max_attempts = 1")
    assert work.segmentation().claim(1)
    house.expire_lease("ingest_batch_files")
    assert work.segmentation().claim(1) == []
    assert [file.message for file in work.refused] == ["x.tif was given up: its worker vanished 1 times"]
    assert house.value("SELECT count(*) FROM resource_cleanup_outbox") == 0, "what an image holds stays"


def test_a_canceled_batch_has_no_pages_left_to_do(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R23, R26: pages that were found but not checked are canceled with their batch; the same files make a new one."""
    work = Work(house, house.batch({"x.tif": tiff(3)}, tmp_path))
    finished(work)
    late = claimed(work)
    result = late.task(*late.arguments)
    cancel_batch(house.engine, work.batch.id, Operator("anna", "wrong folder"))
    assert {row.status for row in house.rows(ROWS)} == {"canceled"}
    with pytest.raises(Exception, match="no longer held"):
        late.finish(result)
    work.all()
    assert house.value("SELECT count(*) FROM item_images") == 0 and unowned(house) == set()
    assert Work(house, house.batch({"x.tif": tiff(3)}, tmp_path)).all().status == "completed"


@pytest.mark.parametrize("finish", [False, True])
def test_the_same_file_again_is_the_same_batch(house: House, engines: FakeEngines, tmp_path: Path, finish: bool) -> None:
    """R94: a request names files, not pages; what is left is read from where the file lies now; `again` does all anew."""
    work = Work(house, house.batch({"x.tif": tiff(3)}, tmp_path / "usb"))
    finished(work)
    if finish:
        work.all()
    (tmp_path / "usb" / "x.tif").unlink()
    again = house.batch({"x.tif": tiff(3)}, tmp_path / "home")
    assert again.id == work.batch.id
    assert Work(house, again).all().status == "completed"
    assert len(house.rows(ROWS)) == 3
    anew = house.batch({"x.tif": tiff(3)}, tmp_path / "home", again=True)
    assert Work(house, anew).all().status == "completed"
    assert house.value("SELECT count(*) FROM item_images") == 6 and unowned(house) == set()


@pytest.mark.parametrize("change", ["gone", "changed"])
def test_a_file_that_changes_between_its_pages(house: House, engines: FakeEngines, tmp_path: Path, change: str) -> None:
    """R87: a page of another file is not taken for the one that was found."""
    work = Work(house, house.batch({"x.tif": tiff(2)}, tmp_path))
    finished(work)
    if change == "gone":
        (tmp_path / "x.tif").unlink()
    else:
        (tmp_path / "x.tif").write_bytes(tiff(1))
    work.all()
    assert [(file.label, file.category) for file in work.refused] == [("x.tif (2)", Category.UNREADABLE)]
    assert unowned(house) == set()


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        pytest.param({"max_pages": 2}, "x.tif has more than the 2 pages allowed", id="pages"),
        pytest.param({"max_bytes": len(tiff(3))}, "", id="just the bytes"),
    ],
)
def test_a_file_has_only_so_many_pages(
    house: House, engines: FakeEngines, tmp_path: Path, limits: dict[str, Any], sentence: str
) -> None:
    """R87: a file of too many pages is refused as a whole, in one sentence."""
    house.settings = replace(house.settings, limits=replace(LIMITS, **limits))
    work = Work(house, house.batch({"x.tif": tiff(3)}, tmp_path))
    work.all()
    assert "".join(file.message for file in work.refused) == sentence
    assert len(house.rows(ROWS)) == (1 if sentence else 3)


def test_whoever_watches_hears_of_further_pages(house: House, engines: FakeEngines, tmp_path: Path) -> None:
    """R86: a bar that expects one page learns of the others when the first is done."""
    heard: list[int] = []
    for name, damaged in (("x.tif", None), ("y.tif", 1)):
        work = Work(house, house.batch({name: tiff(3, damaged)}, tmp_path))
        (unit,) = source_of(work, heard).claim(1)
        unit.finish(unit.task(*unit.arguments))
    assert heard == [2, 2]
