"""The local blob store: an object's identity, whole or not at all, never written twice, and nothing left behind."""

import hashlib
import os
import re
import uuid
from pathlib import Path

import pytest

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage import LocalBlobStore, new_object_key, open_store
from scribe_pipeline.storage.blobs import TEMPORARY_PREFIX

DATA = b"the bytes of a scan"
DIGEST = hashlib.sha256(DATA).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> LocalBlobStore:
    """A store whose folder is not there yet."""
    return LocalBlobStore(tmp_path / "deep" / "blobs")


def contents(store: LocalBlobStore) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.folder.iterdir()}


@pytest.mark.parametrize("extension", ["jpg", "png", "tiff"])
def test_a_key_says_what_it_holds_and_is_never_given_twice(extension: str) -> None:
    """R51: `<64 hex>-<uuid>.<ext>` with the digest of the bytes."""
    keys = {new_object_key(DIGEST, extension) for _ in range(100)}
    assert len(keys) == 100
    for key in keys:
        found = re.fullmatch(rf"([0-9a-f]{{64}})-([0-9a-f-]{{36}})\.{extension}", key)
        assert found is not None and found[1] == DIGEST
        assert uuid.UUID(found[2]).version == 4


def test_identical_bytes_are_two_objects(store: LocalBlobStore) -> None:
    """R52: deleting the first leaves the second readable."""
    first, second = new_object_key(DIGEST, "png"), new_object_key(DIGEST, "png")
    for key in (first, second):
        store.write(key, DATA, "claim")
    store.delete(first)
    assert contents(store) == {second: DATA} and store.read(second) == DATA


def test_a_taken_key_is_not_written_again(store: LocalBlobStore) -> None:
    """R51: the first bytes stay."""
    store.write("key.png", DATA, "one")
    with pytest.raises(FileExistsError):
        store.write("key.png", b"other", "two")
    assert contents(store) == {"key.png": DATA}


@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_failing_write_leaves_no_temporary(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """R51: whole or not at all; R87: and no leftovers."""

    def fail(*arguments: object) -> None:
        assert any(path.name.startswith(TEMPORARY_PREFIX) for path in store.folder.iterdir())
        raise OSError(5, "input/output error")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(ScribeError, match="cannot be written to: input/output"):
        store.write("key.png", DATA, "claim")
    assert contents(store) == {}


def test_the_bytes_are_on_the_disk_before_they_have_a_name(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """R51: no key ever names a part of an object, not even after a power cut."""
    order: list[str] = []
    link, fsync = os.link, os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (order.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(os, "link", lambda source, target: (order.append("link"), link(source, target)))
    store.write("key.png", DATA, "claim")
    assert order == ["fsync", "link", "fsync"]


def test_only_the_claims_own_temporaries_are_removed(store: LocalBlobStore) -> None:
    batch = uuid.UUID(int=5)
    store.write("key.png", DATA, "claim")
    mine = [f"{TEMPORARY_PREFIX}{batch}-1-1-{name}" for name in ("a", "b")]
    others = [f"{TEMPORARY_PREFIX}{claim}-a" for claim in (f"{batch}-1-11", f"{batch}-11-1", f"{batch}-2-1", uuid.UUID(int=6))]
    for name in mine + others:
        (store.folder / name).write_bytes(b"half")
    store.remove_temporaries(f"{batch}-1-1")
    assert set(contents(store)) == {"key.png", *others}


def test_there_may_be_nothing_to_remove(store: LocalBlobStore) -> None:
    store.remove_temporaries("claim")
    store.delete("key.png")
    assert not store.folder.exists()


def test_an_object_that_is_not_there_is_unreadable(store: LocalBlobStore) -> None:
    store.write("another.png", b"scan", "test")
    with pytest.raises(ScribeError, match=r"^the stored scan key\.png is not there$") as refused:
        store.read("key.png")
    assert refused.value.category is Category.UNREADABLE


@pytest.mark.parametrize("made", [False, True], ids=["no folder", "empty folder"])
def test_a_store_that_is_not_there_is_no_pages_fault(store: LocalBlobStore, made: bool) -> None:
    if made:
        store.folder.mkdir(parents=True)
    with pytest.raises(ScribeError, match="SCRIBE_BLOB_URL") as refused:
        store.read("key.png")
    assert refused.value.category is Category.UNAVAILABLE


def test_check_makes_the_folder_and_leaves_nothing_in_it(store: LocalBlobStore) -> None:
    store.check()
    assert contents(store) == {}


def test_check_names_a_folder_that_cannot_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ScribeError, match=r"the folder .*/file/blobs for scans cannot be written to") as refused:
        LocalBlobStore(tmp_path / "file" / "blobs").check()
    assert refused.value.category is Category.UNAVAILABLE


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("/data/blobs", "/data/blobs"),
        ("blobs", "blobs"),
        ("/data/two words", "/data/two words"),
        ("file:///data/blobs", "/data/blobs"),
        ("file:///data/two%20words", "/data/two words"),
        pytest.param("/data/box#1/blobs", "/data/box#1/blobs"),
        pytest.param("/data/what?/blobs", "/data/what?/blobs"),
        pytest.param("/data/100%25/blobs", "/data/100%25/blobs"),
    ],
)
def test_a_folder_is_opened_by_path_or_url(url: str, folder: str) -> None:
    store = open_store(url)
    assert isinstance(store, LocalBlobStore) and store.folder == Path(folder)


@pytest.mark.parametrize("url", ["gs://bucket/prefix", "s3://bucket", "https://host/blobs", "file://host/blobs"])
def test_another_kind_of_store_is_refused_with_a_sentence(url: str) -> None:
    kind = url.partition("://")[0]
    with pytest.raises(ScribeError, match=rf"^SCRIBE_BLOB_URL must name a folder, not {kind}://$") as refused:
        open_store(url)
    assert refused.value.category is Category.INVALID_ARGUMENT
