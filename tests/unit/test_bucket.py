"""The bucket, and folder and bucket together, when things go wrong: lost answers, an unreachable service, somebody else at work."""

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage import BlobStore, GcsBlobStore, LocalBlobStore, SharedBlobStore, new_object_key
from tests.fake_gcs import HALF, HANGING, LOST, FakeGcs, Stored

DATA = b"the bytes of a scan"
KEY = new_object_key(hashlib.sha256(DATA).hexdigest(), "png")
NAME = f"scans of 1914/{KEY}"
URL = "gs://scans/scans of 1914"
LARGE = os.urandom(1024) * (9 * 1024)

CALLS: dict[str, Callable[[BlobStore], object]] = {
    "write": lambda store: store.write(KEY, DATA, "claim"),
    "read": lambda store: store.read(KEY),
    "delete": lambda store: store.delete(KEY),
    "exists": lambda store: store.exists(KEY),
    "stored": lambda store: list(store.stored()),
    "check": lambda store: store.check(),
}
every_call = pytest.mark.parametrize("name", CALLS)


@pytest.fixture
def gcs() -> Iterator[FakeGcs]:
    with FakeGcs() as fake:
        yield fake


def store_in(gcs: FakeGcs, patience: float = 30, timeout: float = 10) -> GcsBlobStore:
    return GcsBlobStore(gcs.client(), gcs.bucket, "scans of 1914", patience=patience, pause=0.001, timeout=timeout)


def impatient(gcs: FakeGcs, fault: int | str = 503) -> GcsBlobStore:
    """The bucket for somebody who gives up soon, and who waits for no answer where none is to come."""
    return store_in(gcs, 0.1, 0.05 if fault == HANGING else 10)


@pytest.fixture
def bucket(gcs: FakeGcs) -> GcsBlobStore:
    """The bucket for somebody who comes through however slow the machine is."""
    return store_in(gcs)


@pytest.fixture
def shared(bucket: GcsBlobStore, tmp_path: Path) -> SharedBlobStore:
    return SharedBlobStore(LocalBlobStore(tmp_path / "blobs"), bucket)


@pytest.mark.parametrize("data", [DATA, LARGE], ids=["small", "large"])
def test_an_object_comes_with_one_request_that_creates_it(gcs: FakeGcs, bucket: GcsBlobStore, data: bytes) -> None:
    """R51: with several, part of an upload might be finished by nobody; without the condition, it might overwrite."""
    bucket.write(KEY, data, "claim")
    assert gcs.queries("POST") == [{"uploadType": "multipart", "ifGenerationMatch": "0"}]
    assert gcs.objects[NAME].data == data


@every_call
@pytest.mark.parametrize("fault", [500, 502, 503, 504, 429, LOST])
def test_what_passes_is_sat_out(gcs: FakeGcs, bucket: GcsBlobStore, fault: int | str, name: str) -> None:
    """R53, R74: two failures in a row change nothing, not even if the deed was done and only its answer was lost."""
    if name != "write":
        gcs.put(NAME, DATA)
    gcs.order(fault, times=2)
    CALLS[name](bucket)
    assert set(gcs.objects) == (set() if name == "delete" else {NAME})
    assert all(stored.data == DATA for stored in gcs.objects.values())


@every_call
@pytest.mark.parametrize("fault", [503, LOST, HANGING])
def test_patience_has_an_end(gcs: FakeGcs, fault: int | str, name: str) -> None:
    """R53: a service that stays away stops the run with a sentence; R87: it blames no page."""
    if name != "write":
        gcs.put(NAME, DATA)
    gcs.order(fault, times=None)
    with pytest.raises(ScribeError, match=rf"^the bucket {URL} for scans cannot be reached just now: try again later$") as refused:
        CALLS[name](impatient(gcs, fault))
    assert refused.value.category is (Category.TRANSPORT if name == "read" else Category.UNAVAILABLE)
    assert refused.value.__cause__ is None and refused.value.__suppress_context__


def test_a_service_that_is_not_there_is_no_different(gcs: FakeGcs) -> None:
    """R53: refused connections."""
    bucket = impatient(gcs)
    gcs.__exit__()
    with pytest.raises(ScribeError, match="cannot be reached just now") as refused:
        bucket.write(KEY, DATA, "claim")
    assert refused.value.category is Category.UNAVAILABLE


@pytest.mark.parametrize("fault", [LOST, HANGING])
def test_a_write_whose_answer_is_lost_has_succeeded(gcs: FakeGcs, fault: str) -> None:
    """R53: the repeated request finds the very same bytes there, which nobody else can have written."""
    gcs.order(fault, method="POST")
    store_in(gcs, timeout=0.2 if fault == HANGING else 10).write(KEY, DATA, "claim")
    assert len(gcs.queries("POST")) >= 2
    assert [stored.data for stored in gcs.objects.values()] == [DATA]


def test_a_write_that_was_given_up_may_have_been_done(gcs: FakeGcs) -> None:
    """R74: whole then; whoever removes it later finds it."""
    bucket = impatient(gcs)
    gcs.order(LOST, times=None)
    with pytest.raises(ScribeError):
        bucket.write(KEY, DATA, "claim")
    gcs.mend()
    assert gcs.objects[NAME].data == DATA
    bucket.delete(KEY)
    assert not gcs.objects


def test_a_name_that_was_taken_and_given_up_meanwhile_is_spent(gcs: FakeGcs, bucket: GcsBlobStore) -> None:
    """R51: somebody has removed it, so nothing may come under it again."""
    gcs.put(NAME, b"other")
    gcs.before = lambda method, name: gcs.objects.clear() if method == "GET" else None
    with pytest.raises(FileExistsError):
        bucket.write(KEY, DATA, "claim")
    assert not gcs.objects


def test_what_is_not_stored_as_it_was_sent_is_removed(gcs: FakeGcs, bucket: GcsBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """R53: the answer to the upload tells of other bytes."""
    honest = gcs._described
    monkeypatch.setattr(gcs, "_described", lambda name: honest(name) | {"crc32c": "AAAAAA=="})
    with pytest.raises(ScribeError, match=rf"^the bucket {URL} did not keep {KEY} as it was sent") as refused:
        bucket.write(KEY, DATA, "claim")
    assert refused.value.category is Category.UNAVAILABLE
    assert len(gcs.queries("POST")) == 1 and not gcs.objects


def test_half_an_answer_is_no_scan(gcs: FakeGcs, bucket: GcsBlobStore) -> None:
    """R51: it is fetched again, and if it never comes whole, reading has failed."""
    gcs.put(NAME, LARGE)
    gcs.order(HALF, times=2)
    assert bucket.read(KEY) == LARGE
    gcs.order(HALF, times=None)
    with pytest.raises(ScribeError) as refused:
        impatient(gcs).read(KEY)
    assert refused.value.category is Category.TRANSPORT


def test_damaged_bytes_are_no_scan(gcs: FakeGcs, bucket: GcsBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """R51: the checksum of what was stored is another."""
    gcs.put(NAME, DATA)
    monkeypatch.setattr(Stored, "crc32c", "AAAAAA==")
    with pytest.raises(ScribeError) as refused:
        bucket.read(KEY)
    assert refused.value.category is Category.TRANSPORT


@every_call
@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_told_at_once(gcs: FakeGcs, bucket: GcsBlobStore, status: int, name: str) -> None:
    """R28: and are no page's fault."""
    gcs.order(status, times=None)
    with pytest.raises(ScribeError, match=rf"^{URL} is refused to the credentials in use: let them") as refused:
        CALLS[name](bucket)
    assert refused.value.category is Category.UNAVAILABLE
    assert len(gcs.asked) == 1


@every_call
def test_a_missing_bucket_is_named(gcs: FakeGcs, name: str) -> None:
    """R74: a wrong name never makes a removal a success, nor a page unreadable."""
    elsewhere = GcsBlobStore(gcs.client(), "elsewhere", patience=30, pause=0.001)
    with pytest.raises(ScribeError, match=r"^there is no bucket gs://elsewhere: is SCRIBE_BLOB_URL right") as refused:
        CALLS[name](elsewhere)
    assert refused.value.category is Category.UNAVAILABLE


@every_call
def test_another_refusal_is_told_with_its_number(gcs: FakeGcs, bucket: GcsBlobStore, name: str) -> None:
    """R28: what to do about it stands in the settings of the bucket."""
    gcs.order(413, times=None)
    with pytest.raises(ScribeError, match=r"refuses what is asked of it: see its settings \(HTTP 413\)$") as refused:
        CALLS[name](bucket)
    assert refused.value.category is Category.UNAVAILABLE


def test_only_the_generation_that_was_seen_is_removed(gcs: FakeGcs, bucket: GcsBlobStore) -> None:
    """R74: what has taken its place is looked at anew, and then removed."""
    gcs.put(NAME, DATA)
    first = gcs.objects[NAME].generation

    def replace_once(method: str, name: str) -> None:
        if method == "DELETE" and gcs.objects[NAME].generation == first:
            gcs.put(NAME, b"other")

    gcs.before = replace_once
    bucket.delete(KEY)
    assert gcs.queries("DELETE") == [
        {"ifGenerationMatch": str(first), "prettyPrint": "false"},
        {"ifGenerationMatch": str(first + 1), "prettyPrint": "false"},
    ]
    assert not gcs.objects


def test_an_object_that_is_replaced_for_ever_stays(gcs: FakeGcs, bucket: GcsBlobStore) -> None:
    """R50, R74: a removal that does not come to an end is no success."""
    gcs.put(NAME, DATA)
    gcs.before = lambda method, name: gcs.put(NAME, b"other") if method == "DELETE" else None
    with pytest.raises(ScribeError, match="is written again as often as it is removed") as refused:
        bucket.delete(KEY)
    assert refused.value.category is Category.UNAVAILABLE
    assert len(gcs.queries("DELETE")) == 5 and gcs.objects[NAME].data == b"other"


def test_a_removal_by_two_is_success_for_both(gcs: FakeGcs, bucket: GcsBlobStore) -> None:
    """R74: the other one came first, between look and deed."""
    gcs.put(NAME, DATA)
    gcs.before = lambda method, name: gcs.objects.clear() if method == "DELETE" else None
    bucket.delete(KEY)
    assert len(gcs.queries("DELETE")) == 1


def test_a_prefix_keeps_to_itself(gcs: FakeGcs, bucket: GcsBlobStore) -> None:
    """R76: what lies beside it in the same bucket is not seen and not touched."""
    whole = GcsBlobStore(gcs.client(), gcs.bucket)
    gcs.put(f"scans of 1914 and later/{KEY}", b"beside")
    gcs.put(f"scans of 1914/more/{KEY}", b"below")
    whole.write(KEY, b"above", "claim")
    before = dict(gcs.objects)
    bucket.write(KEY, DATA, "claim")
    assert [(found.key, found.size) for found in bucket.stored()] == [(KEY, len(DATA))]
    assert [(found.key, found.size) for found in whole.stored()] == [(KEY, 5)]
    bucket.delete(KEY)
    assert gcs.objects == before


def test_both_have_what_was_written(gcs: FakeGcs, shared: SharedBlobStore) -> None:
    """R74: and neither has it when it was removed."""
    shared.write(KEY, DATA, "claim")
    assert shared.local.read(KEY) == shared.bucket.read(KEY) == DATA
    shared.delete(KEY)
    assert not shared.local.exists(KEY) and not gcs.objects


@pytest.mark.parametrize("fault", [503, 403, HANGING])
def test_what_the_bucket_does_not_take_the_folder_does_not_keep(gcs: FakeGcs, shared: SharedBlobStore, fault: int | str) -> None:
    """R53: the local copy goes at once, and the bucket's reason is told."""
    shared.bucket = impatient(gcs, fault)
    gcs.order(fault, times=None)
    with pytest.raises(ScribeError, match=URL) as refused:
        shared.write(KEY, DATA, "claim")
    assert refused.value.category is Category.UNAVAILABLE
    assert list(shared.local.stored()) == []


def test_a_key_that_is_taken_in_the_bucket_is_not_kept_in_the_folder(gcs: FakeGcs, shared: SharedBlobStore) -> None:
    """R51, R53: the folder does not answer with bytes that the bucket does not have."""
    gcs.put(NAME, b"other")
    with pytest.raises(FileExistsError):
        shared.write(KEY, DATA, "claim")
    assert not shared.local.exists(KEY) and shared.read(KEY) == b"other"


def test_an_interrupted_write_leaves_no_local_copy(shared: SharedBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """R53: whatever ends it."""

    def interrupt(*arguments: object) -> None:
        assert shared.local.exists(KEY)
        raise KeyboardInterrupt

    monkeypatch.setattr(shared.bucket, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        shared.write(KEY, DATA, "claim")
    assert not shared.local.exists(KEY)


def test_the_first_reason_is_told(gcs: FakeGcs, shared: SharedBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """R55: if the local copy cannot be removed either, that is left to those who remove it later."""

    def fail(key: str) -> None:
        raise ScribeError(Category.UNAVAILABLE, "the folder cannot be written to")

    gcs.order(403, times=None)
    monkeypatch.setattr(shared.local, "delete", fail)
    with pytest.raises(ScribeError, match="is refused to the credentials"):
        shared.write(KEY, DATA, "claim")


def test_what_the_folder_does_not_take_is_not_sent(gcs: FakeGcs, shared: SharedBlobStore, tmp_path: Path) -> None:
    """R53: the folder comes first."""
    (tmp_path / "blobs").write_bytes(b"a file where the folder should be")
    with pytest.raises(ScribeError, match=r"^the folder .* cannot be written to"):
        shared.write(KEY, DATA, "claim")
    assert not gcs.asked


@pytest.mark.parametrize("state", ["never there", "another's folder", "damaged disk"])
def test_another_machines_scan_is_read_from_the_bucket(
    gcs: FakeGcs, shared: SharedBlobStore, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    """R74: the folder is a copy, the bucket is what all have."""
    if state != "never there":
        shared.write(new_object_key("0" * 64, "png"), b"other", "claim")
    if state == "damaged disk":
        shared.local.write(KEY, DATA, "claim")
        monkeypatch.setattr(Path, "read_bytes", lambda path: (_ for _ in ()).throw(OSError(5, "input/output error")))
    gcs.put(NAME, DATA)
    assert shared.read(KEY) == DATA
    assert shared.exists(KEY)


def test_what_only_a_damaged_disk_has_is_not_lost(gcs: FakeGcs, shared: SharedBlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """R87: a scan older than the bucket may be readable later; one that neither has is unreadable for good."""
    shared.local.write(KEY, DATA, "claim")
    shared.bucket.write(new_object_key("0" * 64, "png"), b"other", "claim")
    monkeypatch.setattr(Path, "read_bytes", lambda path: (_ for _ in ()).throw(OSError(5, "input/output error")))
    with pytest.raises(ScribeError) as refused:
        shared.read(KEY)
    assert refused.value.category is Category.TRANSPORT
    monkeypatch.undo()
    with pytest.raises(ScribeError) as refused:
        shared.read(new_object_key("1" * 64, "png"))
    assert refused.value.category is Category.UNREADABLE


def test_a_near_copy_is_read_without_the_bucket(gcs: FakeGcs, shared: SharedBlobStore) -> None:
    """R74: also while it is down."""
    shared.write(KEY, DATA, "claim")
    gcs.order(503, times=None)
    asked = len(gcs.asked)
    assert shared.read(KEY) == DATA
    assert len(gcs.asked) == asked


def test_a_removal_that_fails_in_the_bucket_can_be_repeated(gcs: FakeGcs, shared: SharedBlobStore) -> None:
    """R74: the folder's copy is not given up before the bucket's."""
    shared.bucket = impatient(gcs)
    shared.write(KEY, DATA, "claim")
    gcs.order(503, times=None)
    with pytest.raises(ScribeError):
        shared.delete(KEY)
    assert shared.local.exists(KEY) and NAME in gcs.objects
    gcs.mend()
    shared.delete(KEY)
    assert not shared.exists(KEY) and not gcs.objects


def test_objects_of_both_are_listed_once(gcs: FakeGcs, shared: SharedBlobStore) -> None:
    """R62: what lies only in the folder or only in the bucket is not forgotten."""
    near, far = new_object_key("1" * 64, "png"), new_object_key("2" * 64, "png")
    shared.write(KEY, DATA, "claim")
    shared.local.write(near, b"near", "claim")
    shared.bucket.write(far, b"far", "claim")
    listed = sorted((found.key, found.size) for found in shared.stored())
    assert listed == sorted([(KEY, len(DATA)), (near, 4), (far, 3)])
    assert shared.exists(near) and shared.exists(far)


def test_temporaries_are_those_of_the_folder(gcs: FakeGcs, shared: SharedBlobStore, tmp_path: Path) -> None:
    """R75: a bucket has none."""
    shared.write(KEY, DATA, "claim")
    for name in ("claim-a", "other-a", "other-b"):
        (tmp_path / "blobs" / f".scribe-upload-{name}").write_bytes(b"half")
    asked: list[Any] = list(gcs.asked)
    shared.remove_temporaries("claim")
    assert shared.sweep_temporaries(-1) == 2
    assert [path.name for path in (tmp_path / "blobs").iterdir()] == [KEY] and gcs.asked == asked


def test_both_are_checked(gcs: FakeGcs, shared: SharedBlobStore, tmp_path: Path) -> None:
    """R28: either may be what is wrong."""
    shared.check()
    assert not gcs.objects and list((tmp_path / "blobs").iterdir()) == []
    gcs.order(403, times=None)
    with pytest.raises(ScribeError, match=URL):
        shared.check()
    gcs.mend()
    (tmp_path / "blobs").rmdir()
    (tmp_path / "blobs").write_bytes(b"")
    with pytest.raises(ScribeError, match=f"the folder {tmp_path}"):
        shared.check()
