"""The folder as a blob store: an object's identity, whole or not at all, never written twice, and nothing left behind."""

import errno
import hashlib
import os
import re
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage import LocalBlobStore, new_object_key
from scribe_pipeline.storage.blobs import TEMPORARY_PREFIX

DATA = b"the bytes of a scan"
DIGEST = hashlib.sha256(DATA).hexdigest()
KEY = new_object_key(DIGEST, "png")
HOUR = 3600


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


@contextmanager
def failing(owner: Any, name: str, number: int = errno.EIO, after: int = 0) -> Iterator[None]:
    """A system call that fails as the disk would make it, having succeeded so many times; that it does is seen to."""
    call, calls = getattr(owner, name), 0

    def fail(*arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls > after:
            raise OSError(number, os.strerror(number))
        return call(*arguments, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(owner, name, fail)
        yield
    assert calls > after


class FullDisk:
    """A file of which only the first half of the bytes comes to the disk."""

    def __init__(self, path: Path) -> None:
        self.file = open(path, "xb")  # noqa: SIM115

    def __enter__(self) -> "FullDisk":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> None:
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize(
    ("owner", "name", "after"),
    [
        pytest.param(Path, "mkdir", 0, id="making the folder"),
        pytest.param(Path, "open", 0, id="opening"),
        pytest.param(os, "fsync", 0, id="syncing the file"),
        pytest.param(os, "link", 0, id="naming"),
        pytest.param(os, "open", 0, id="opening the folder"),
        pytest.param(os, "fsync", 1, id="syncing the folder"),
    ],
)
def test_a_failing_write_leaves_nothing(store: LocalBlobStore, owner: Any, name: str, after: int, number: int) -> None:
    """R53: whichever system call fails, also after the object has its name, there is neither an object nor a part of one."""
    store.write(other := new_object_key(DIGEST, "png"), DATA, "other")
    told = rf"^the folder .* cannot be written to: {os.strerror(number)}$"
    with failing(owner, name, number, after), pytest.raises(ScribeError, match=told) as refused:
        store.write(KEY, DATA, "claim")
    assert refused.value.category is Category.UNAVAILABLE
    assert contents(store) == {other: DATA}
    store.write(KEY, DATA, "claim")
    assert contents(store) == {other: DATA, KEY: DATA}


def test_a_part_that_was_written_is_removed(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """R53: the disk is full in the middle of the bytes."""
    written: list[int] = []
    unlink = Path.unlink

    def noting(path: Path, missing_ok: bool = False) -> None:
        written.append(path.stat().st_size)
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "open", lambda path, mode: FullDisk(path))
    monkeypatch.setattr(Path, "unlink", noting)
    with pytest.raises(ScribeError, match="No space left on device"):
        store.write(KEY, DATA, "claim")
    assert written == [len(DATA) // 2]
    assert contents(store) == {}


def test_a_temporary_that_cannot_be_removed_harms_nobody(store: LocalBlobStore) -> None:
    """R75: the object is stored; the sweep finds the rest."""
    with failing(Path, "unlink"):
        store.write(KEY, DATA, "claim")
    assert len(contents(store)) == 2 and store.read(KEY) == DATA
    assert [found.key for found in store.stored()] == [KEY]
    assert store.sweep_temporaries(-1) == 1
    assert contents(store) == {KEY: DATA}


def test_the_bytes_are_on_the_disk_before_they_have_a_name(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """R51: no key ever names a part of an object, not even after a power cut."""
    order: list[str] = []
    link, fsync = os.link, os.fsync
    monkeypatch.setattr(os, "fsync", lambda descriptor: (order.append("fsync"), fsync(descriptor)))
    monkeypatch.setattr(os, "link", lambda source, target: (order.append("link"), link(source, target)))
    store.write(KEY, DATA, "claim")
    assert order == ["fsync", "link", "fsync"]


def test_the_same_bytes_are_refused_under_a_taken_key(store: LocalBlobStore) -> None:
    """R51: a folder answers at once, so nobody can have written them by the same call."""
    store.write(KEY, DATA, "one")
    with pytest.raises(FileExistsError):
        store.write(KEY, DATA, "two")
    assert contents(store) == {KEY: DATA}


def test_what_is_removed_stays_removed(store: LocalBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """R74: no power cut brings it back, even if the first attempt could not see to that."""
    store.write(KEY, DATA, "claim")
    with failing(os, "fsync"), pytest.raises(ScribeError, match=r"^the folder .* cannot be written to") as refused:
        store.delete(KEY)
    assert refused.value.category is Category.UNAVAILABLE
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_ino))
    store.delete(KEY)
    assert synced == [store.folder.stat().st_ino] and contents(store) == {}


def test_an_object_that_cannot_be_removed_is_told(store: LocalBlobStore) -> None:
    """R50: the failure of a removal is never taken for its success."""
    store.write(KEY, DATA, "claim")
    told = rf"^the folder {store.folder} .*: Permission denied$"
    with failing(Path, "unlink", errno.EACCES), pytest.raises(ScribeError, match=told) as refused:
        store.delete(KEY)
    assert refused.value.category is Category.UNAVAILABLE
    assert contents(store) == {KEY: DATA}


def test_only_the_claims_own_temporaries_are_removed(store: LocalBlobStore) -> None:
    """R76: what another writer is about to name stays."""
    batch = uuid.UUID(int=5)
    store.write(KEY, DATA, "claim")
    mine = [f"{TEMPORARY_PREFIX}{batch}-1-1-{name}" for name in ("a", "b")]
    others = [f"{TEMPORARY_PREFIX}{claim}-a" for claim in (f"{batch}-1-11", f"{batch}-11-1", f"{batch}-2-1", uuid.UUID(int=6))]
    for name in mine + others:
        (store.folder / name).write_bytes(b"half")
    store.remove_temporaries(f"{batch}-1-1")
    assert set(contents(store)) == {KEY, *others}


def test_only_old_temporary_files_are_swept(store: LocalBlobStore, tmp_path: Path) -> None:
    """R75, R76: young ones, links and what they point to, folders, objects and strangers' files stay, whatever their age."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"of somebody else")
    store.write(KEY, DATA, "claim")
    old, young, link, folder, alike = (
        store.folder / f"{prefix}{name}"
        for prefix, name in (
            (TEMPORARY_PREFIX, "old"),
            (TEMPORARY_PREFIX, "young"),
            (TEMPORARY_PREFIX, "link"),
            (TEMPORARY_PREFIX, "folder"),
            ("", "scribe-upload-old"),
        )
    )
    folder.mkdir()
    (inside := folder / f"{TEMPORARY_PREFIX}old").write_bytes(b"half")
    link.symlink_to(elsewhere)
    for path in (old, young, alike):
        path.write_bytes(b"half")
    for path in store.folder.iterdir():
        minutes = 59 if path == young else 61
        os.utime(path, (time.time() - minutes * 60,) * 2, follow_symlinks=False)
    for path in (elsewhere, inside):
        os.utime(path, (0, 0))
    before = set(store.folder.iterdir())
    assert store.sweep_temporaries(HOUR) == 1
    assert before - set(store.folder.iterdir()) == {old}
    assert elsewhere.read_bytes() == b"of somebody else" and link.is_symlink() and inside.exists()
    assert store.read(KEY) == DATA
    assert store.sweep_temporaries(HOUR) == 0


def test_links_and_folders_named_as_objects_are_none(store: LocalBlobStore, tmp_path: Path) -> None:
    """R76: an audit counts what was written here."""
    store.write(KEY, DATA, "claim")
    (tmp_path / "elsewhere").write_bytes(b"of somebody else")
    (store.folder / new_object_key(DIGEST, "png")).symlink_to(tmp_path / "elsewhere")
    (store.folder / new_object_key(DIGEST, "png")).mkdir()
    assert [(found.key, found.size) for found in store.stored()] == [(KEY, len(DATA))]


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.remove_temporaries("claim"),
        lambda store: list(store.stored()),
        lambda store: store.sweep_temporaries(HOUR),
    ],
    ids=["remove_temporaries", "stored", "sweep_temporaries"],
)
def test_where_there_is_no_folder_there_is_nothing(store: LocalBlobStore, call: Callable[[LocalBlobStore], object]) -> None:
    """R74: and none is made for the purpose."""
    assert not call(store)
    assert not store.folder.exists()


def test_a_folder_that_is_not_there_confirms_no_removal(store: LocalBlobStore) -> None:
    """R70: a disk that is not mounted may bring the object back."""
    with pytest.raises(ScribeError, match="No such file or directory") as caught:
        store.delete(KEY)
    assert caught.value.category is Category.UNAVAILABLE
    assert not store.folder.exists()


def test_an_empty_folder_is_no_pages_fault(store: LocalBlobStore) -> None:
    """R87: a disk that is not mounted leaves one."""
    store.folder.mkdir(parents=True)
    with pytest.raises(ScribeError, match="SCRIBE_BLOB_URL") as refused:
        store.read(KEY)
    assert refused.value.category is Category.UNAVAILABLE


def test_an_object_that_cannot_be_read_may_be_later(store: LocalBlobStore) -> None:
    """R87: the disk's fault, not the page's."""
    store.write(KEY, DATA, "claim")
    with failing(Path, "read_bytes"), pytest.raises(ScribeError, match="cannot be read just now") as refused:
        store.read(KEY)
    assert refused.value.category is Category.TRANSPORT


def test_check_makes_the_folder_and_leaves_nothing_in_it(store: LocalBlobStore) -> None:
    """R28: the first run finds a place for its scans."""
    store.check()
    assert contents(store) == {}


@pytest.mark.parametrize(
    "call",
    [
        lambda store: store.check(),
        lambda store: store.write(KEY, DATA, "claim"),
        lambda store: store.delete(KEY),
        lambda store: list(store.stored()),
    ],
    ids=["check", "write", "delete", "stored"],
)
def test_a_folder_that_is_none_is_named(tmp_path: Path, call: Callable[[LocalBlobStore], object]) -> None:
    """R28: the sentence says where to look."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ScribeError, match=r"^the folder .*/file/blobs for scans cannot be (written to|read): Not a dir") as refused:
        call(LocalBlobStore(tmp_path / "file" / "blobs"))
    assert refused.value.category is Category.UNAVAILABLE
