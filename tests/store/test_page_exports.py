"""Exports kept in the store: made from one committed revision, once, and nothing without an owner whenever the maker dies."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.exports import FORMATS, DerivedPage, current_page, derive_exports, due_exports, render, write_exports
from scribe_pipeline.pages import Image, load_revision
from scribe_pipeline.storage import BlobStore, LocalBlobStore, open_store
from tests.houses import House, StoppedError, stopped_after

EXPORTS = "SELECT format, object_key, sha256, size_bytes FROM page_exports ORDER BY revision, format"
KEYS = "SELECT object_key FROM page_exports ORDER BY 1"
STAGED = "SELECT resource_key FROM resource_cleanup_outbox ORDER BY 1"


class Interrupting(LocalBlobStore):
    """A store where something happens once, right before or right after an object is written."""

    def __init__(self, house: House, what: Callable[[], object], *, objects: int = 0, written: bool = False) -> None:
        super().__init__(Path(house.store_url))
        self._what, self._objects, self._written = what, objects, written

    def write(self, key: str, data: bytes, claim: str) -> None:
        """Write the object, and do it when its turn has come."""
        self._objects -= 1
        if self._objects < 0 and not self._written:
            self._what()
        super().write(key, data, claim)
        if self._objects < 0 and self._written:
            self._what()


def die() -> None:
    """What a killed process does."""
    raise StoppedError


def draft(house: House, text: str = "text") -> Image:
    """An image whose page is a draft at revision 2."""
    image = house.page()
    house.job(image)
    house.complete(house.claim(), text)
    return image


def derive(house: House, image_id: UUID, revision: int = 2, store: BlobStore | None = None) -> DerivedPage:
    return derive_exports(house.engine, store or open_store(house.store_url), image_id, revision)


def column(house: House, query: str) -> list[str]:
    return [row[0] for row in house.rows(query)]


def objects(house: House) -> set[str]:
    """The objects in the store that are no scans."""
    scans = {row.object_key for row in house.rows("SELECT object_key FROM item_images")}
    return {path.name for path in Path(house.store_url).iterdir()} - scans


def everything_is_owned(house: House) -> bool:
    """Whether each object has a row that refers to it, or waits to be removed; and what is referred to is there."""
    kept = set(column(house, KEYS))
    return kept <= objects(house) <= kept | set(column(house, STAGED))


def test_a_revisions_exports_are_kept(house: House) -> None:
    """R92: each format once, under the revision that it was made from, with the bytes that it has on the command line."""
    image = draft(house)
    made = derive(house, image.id)
    with house.engine.connect() as connection:
        expected = render(image, load_revision(connection, image.id, 2))
    rows = {row.format: row for row in house.rows(EXPORTS)}
    assert set(rows) == set(FORMATS) == {export.format for export in made.exports}
    for name, data in expected.items():
        assert open_store(house.store_url).read(rows[name].object_key) == data
        assert (rows[name].sha256, rows[name].size_bytes) == (hashlib.sha256(data).hexdigest(), len(data))
    assert house.rows("SELECT DISTINCT item_image_id, revision, workspace_id FROM page_exports") == [
        (image.id, 2, image.workspace_id)
    ]
    assert column(house, STAGED) == []


def test_what_is_there_is_not_made_again(house: House) -> None:
    """R92: the same revision twice changes nothing, a format that is missing is made alone."""
    image = draft(house)
    derive(house, image.id)
    before, there = house.rows(EXPORTS), objects(house)
    assert derive(house, image.id).exports == ()
    assert (house.rows(EXPORTS), objects(house), column(house, STAGED)) == (before, there, [])
    house.execute("DELETE FROM page_exports WHERE format = 'hocr'")
    assert [export.format for export in derive(house, image.id).exports] == ["hocr"]
    assert [row.sha256 for row in house.rows(EXPORTS)] == [row.sha256 for row in before]


def test_every_revision_has_its_own(house: House) -> None:
    """R92, R163: a correction changes no export of what was before, and an earlier revision can still be exported."""
    image = draft(house)
    derive(house, image.id)
    before = house.rows(EXPORTS)
    house.save(image.id, 2, "by hand")
    assert len(derive(house, image.id, 3).exports) == len(derive(house, image.id, 1).exports) == 5
    assert house.rows(EXPORTS.replace("ORDER", "WHERE revision = 2 ORDER")) == before
    key = house.value("SELECT object_key FROM page_exports WHERE revision = 3 AND format = 'txt'")
    assert open_store(house.store_url).read(key).startswith(b"by hand\n")


def test_exports_read_the_committed_page_only(house: House) -> None:
    """R163: a revision that is not committed yet is not there, and nothing is made of it."""
    image = draft(house)
    with pytest.raises(ScribeError, match="no revision 3") as caught:
        derive(house, image.id, 3)
    assert caught.value.category is Category.NOT_FOUND
    assert (house.rows(EXPORTS), column(house, STAGED), objects(house)) == ([], [], set())


def test_only_the_current_revision_is_exported_on_request(house: House) -> None:
    """R92: whoever exports names the revision that he has seen; a stale one is refused, and the current one is named."""
    image = draft(house)
    with house.engine.connect() as connection:
        assert current_page(connection, image.id, 2)[1].revision == 2
        for stale in (1, 3):
            with pytest.raises(ScribeError, match=f"at revision 2, not at {stale}") as caught:
                current_page(connection, image.id, stale)
            assert caught.value.category is Category.FAILED_PRECONDITION
        with pytest.raises(ScribeError, match="there is no image"):
            current_page(connection, uuid4(), 1)
        with pytest.raises(ScribeError, match="has no page"):
            current_page(connection, house.image().id, 1)


@pytest.mark.parametrize(
    "after", ["INSERT INTO resource_cleanup_outbox", "DELETE FROM resource_cleanup_outbox", "INSERT INTO page_exports"]
)
def test_killed_inside_a_transaction(house: House, after: str) -> None:
    """R92: nothing is left without an owner, and the next one finishes."""
    image = draft(house)
    with stopped_after(house.engine, after):
        derive(house, image.id)
    assert house.rows(EXPORTS) == []
    assert everything_is_owned(house)
    assert len(derive(house, image.id).exports) == 5
    assert everything_is_owned(house)


@pytest.mark.parametrize("objects_before", [0, 2, 4])
@pytest.mark.parametrize("written", [False, True])
def test_killed_between_the_objects(house: House, objects_before: int, written: bool) -> None:
    """R92: each object was staged before its first byte, for an hour, and the next one finishes."""
    image = draft(house)
    with pytest.raises(StoppedError):
        derive(house, image.id, store=Interrupting(house, die, objects=objects_before, written=written))
    assert len(objects(house)) == objects_before + written
    assert everything_is_owned(house)
    assert house.rows(
        "SELECT DISTINCT status, kind, next_attempt_at - created_at > interval '59 minutes' FROM resource_cleanup_outbox"
    ) == [("staged", "upload_blob", True)]
    assert len(derive(house, image.id).exports) == 5
    assert everything_is_owned(house)
    assert len(column(house, STAGED)) == 5, "what the first one has written is still to be removed"


@pytest.mark.parametrize("objects_before", [0, 4])
def test_two_at_the_same_time(house: House, objects_before: int) -> None:
    """R92: one of them keeps its exports; what the other has written waits to be removed."""
    image = draft(house)
    inner: list[DerivedPage] = []
    store = Interrupting(house, lambda: inner or inner.append(derive(house, image.id)), objects=objects_before)
    assert derive(house, image.id, store=store).exports == ()
    assert len(inner[0].exports) == len(house.rows(EXPORTS)) == 5
    assert len(column(house, STAGED)) == 5
    assert everything_is_owned(house)


def test_an_image_that_goes_meanwhile_gets_no_exports(house: House) -> None:
    """R92: nothing refers to an image that is not there; the objects are left to be removed."""
    image = draft(house)

    def remove() -> None:
        house.execute("DELETE FROM item_images WHERE id = :id", id=image.id)

    assert derive(house, image.id, store=Interrupting(house, remove)).exports == ()
    assert house.rows(EXPORTS) == []
    assert len(column(house, STAGED)) == 5
    house.empty()


@pytest.mark.parametrize(
    "removal", ["DELETE FROM resource_cleanup_outbox", "UPDATE resource_cleanup_outbox SET status = 'pending'"]
)
def test_an_object_whose_removal_has_begun_is_not_referred_to(house: House, removal: str) -> None:
    """R92: whoever took longer than an hour makes his exports anew."""
    image = draft(house)
    late = Interrupting(house, lambda: house.execute(f"{removal} WHERE resource_key LIKE '%.hocr'"))
    assert [export.format for export in derive(house, image.id, store=late).exports] == ["alto", "page", "txt", "json"]
    assert everything_is_owned(house)
    assert [export.format for export in derive(house, image.id).exports] == ["hocr"]


def test_keeping_locks_the_image(house: House, impatient: House) -> None:
    """R92: while somebody else holds the image, as whoever deletes it does, nothing is kept of it."""
    image = draft(house)
    with house.engine.begin() as connection:
        connection.exec_driver_sql(f"SELECT FROM item_images WHERE id = '{image.id}' FOR UPDATE")
        with pytest.raises(ScribeError, match="55P03"):
            derive(house, image.id)
    assert house.rows(EXPORTS) == []
    assert everything_is_owned(house)


def test_what_is_due(house: House) -> None:
    """R86, R92: drafts whose newest revision lacks an export, however many; not pages that are still to be read."""
    drafts = [draft(house) for _ in range(3)]
    house.job()
    image_without_page = house.image()
    due = set(due_exports(house.engine))
    assert due == {(image.id, 2) for image in drafts}
    assert image_without_page.id not in {image_id for image_id, _ in due}
    derive(house, drafts[0].id)
    derive(house, drafts[1].id)
    house.execute("DELETE FROM page_exports WHERE format = 'alto' AND item_image_id = :id", id=drafts[1].id)
    assert {image_id for image_id, _ in due_exports(house.engine)} == {drafts[1].id, drafts[2].id}
    house.save(drafts[0].id, 2)
    assert (drafts[0].id, 3) in set(due_exports(house.engine))


def test_due_is_asked_piece_by_piece(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """R92: however few are read at once, all come and none twice, also when they are made meanwhile; and those of one batch."""
    monkeypatch.setattr("scribe_pipeline.exports.derive._DUE_AT_ONCE", 2)
    batch, images = house.ingested(5)
    for _ in images:
        house.complete(house.claim())
    other = draft(house)
    seen = []
    for image_id, revision in due_exports(house.engine, batch):
        seen.append(image_id)
        derive(house, image_id, revision)
    assert sorted(seen) == sorted(image.id for image in images)
    assert list(due_exports(house.engine, batch)) == []
    assert list(due_exports(house.engine)) == [(other.id, 2)]


def test_a_batch_is_exported_into_a_folder(house: House, tmp_path: Path) -> None:
    """R163: every format of each page, at the revision named, by the names of the files; further pages are numbered."""
    _, images = house.ingested(2)
    house.execute("UPDATE item_images SET label = 'box/a.tif' WHERE id = :id", id=images[0].id)
    for _ in images:
        house.complete(house.claim())
    house.save(images[1].id, 2, "by hand")
    written = write_exports(house.engine, tmp_path / "out", {images[0].id: 2, images[1].id: 2})
    assert [path.name for path in written] == [f"{stem}.{entry.extension}" for stem in ("a", "2") for entry in FORMATS.values()]
    assert (tmp_path / "out" / "2.txt").read_text() == "text\ntext\ntext\n"
    payload = "SELECT payload FROM annotation_page_revisions WHERE item_image_id = :id AND revision = 2"
    assert (tmp_path / "out" / "a.json").read_text() == house.value(payload, id=images[0].id)
