"""Which store a configuration names, and that a bucket's libraries and credentials matter to nobody who has none."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest

from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage import GcsBlobStore, LocalBlobStore, SharedBlobStore, gcs, new_object_key, open_store, store_url
from tests.conftest import ROOT
from tests.fake_gcs import FakeGcs

KEY = new_object_key("0" * 64, "png")


def no_client() -> None:
    raise AssertionError("a client was made where no bucket is named")


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
    """R87: whatever its name, and whoever makes clients for buckets."""
    store = open_store(store_url(Settings(blob_url=url)), no_client)
    assert isinstance(store, LocalBlobStore) and store.folder == Path(folder)


@pytest.mark.parametrize("home", ["plain", "what? 100%25#1", "Bücher & Akten"])
@pytest.mark.parametrize("url", ["gs://scans", "gs://scans/", "gs://scans/letters", "gs://scans/letters/of 1914/"])
def test_a_bucket_is_opened_with_the_folder_of_this_machine(fake_gcs: FakeGcs, tmp_path: Path, home: str, url: str) -> None:
    """R74: from the string that crosses to other processes; the objects lie under the prefix, with one slash before each."""
    store = open_store(store_url(Settings(home=tmp_path / home, blob_url=url)))
    assert isinstance(store, SharedBlobStore)
    store.write(KEY, b"scan", "claim")
    assert [path.name for path in (tmp_path / home / "blobs").iterdir()] == [KEY]
    prefix = url.removeprefix("gs://scans").strip("/")
    assert list(fake_gcs.objects) == [f"{prefix}/{KEY}" if prefix else KEY]


def test_a_bucket_is_opened_by_itself_too(fake_gcs: FakeGcs) -> None:
    """R62: as the user names it."""
    assert isinstance(open_store("gs://scans/letters"), GcsBlobStore)


@pytest.mark.parametrize(
    "url", ["gs://", "gs:///letters", "gs://Scans", "gs://a b/c", "gs://scans?folder=/tmp", "gs://scans/a?b=c"]
)
def test_a_bucket_that_is_none_is_refused_with_a_sentence(url: str) -> None:
    """R28: a misspelt bucket is refused before anything is asked of it, and nobody can name another folder beside it."""
    with pytest.raises(ScribeError, match=r"^SCRIBE_BLOB_URL must be gs://bucket or gs://bucket/prefix, not ") as refused:
        store_url(Settings(blob_url=url))
    assert refused.value.message.endswith(url) and refused.value.category is Category.INVALID_ARGUMENT


@pytest.mark.parametrize("url", ["s3://bucket", "https://host/blobs", "file://host/blobs"])
def test_another_kind_of_store_is_refused_with_a_sentence(url: str) -> None:
    """R28: no scan goes where nobody finds it."""
    kind = url.partition("://")[0]
    told = rf"^SCRIBE_BLOB_URL must name a folder or gs://bucket/prefix, not {kind}://$"
    with pytest.raises(ScribeError, match=told) as refused:
        open_store(store_url(Settings(blob_url=url)))
    assert refused.value.category is Category.INVALID_ARGUMENT


def test_a_process_has_one_client(fake_gcs: FakeGcs, monkeypatch: pytest.MonkeyPatch) -> None:
    """R87: connections are used again, but never by a process that was forked."""
    first = gcs.process_client()
    assert gcs.process_client() is first
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert gcs.process_client() is not first


def test_another_process_opens_the_same_store(fake_gcs: FakeGcs, tmp_path: Path) -> None:
    """R74: all it needs is the string and the environment."""
    url = store_url(Settings(home=tmp_path, blob_url="gs://scans/letters"))
    write = (
        "import sys; from scribe_pipeline.storage import open_store; open_store(sys.argv[1]).write(sys.argv[2], b'scan', 'claim')"
    )
    subprocess.run([sys.executable, "-c", write, url, KEY], check=True, cwd=ROOT, timeout=300)
    assert open_store(url).read(KEY) == b"scan"
    assert fake_gcs.objects[f"letters/{KEY}"].data == (tmp_path / "blobs" / KEY).read_bytes() == b"scan"


def test_missing_libraries_are_named(tmp_path: Path) -> None:
    """R28: with what to install; a folder needs none of them."""
    script = """
import sys
sys.modules["google"] = sys.modules["google.cloud"] = sys.modules["google.auth"] = sys.modules["google_crc32c"] = None
from pathlib import Path
from scribe_pipeline.errors import ScribeError
from scribe_pipeline.storage import open_store
open_store(sys.argv[1]).check()
try:
    open_store("gs://scans?folder=" + sys.argv[1])
except ScribeError as error:
    print(error.category, error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "blobs"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "unavailable a bucket for scans needs Google's libraries: pip install 'scribe-pipeline[gcp]'\n"


def test_a_folder_takes_no_library_of_a_bucket(tmp_path: Path) -> None:
    """R28: neither its time nor its memory."""
    script = """
import sys
from scribe_pipeline.storage import open_store
open_store(sys.argv[1]).check()
print([name for name in sys.modules if name.startswith(("google", "requests", "dagster_gcp"))])
"""
    done = subprocess.run(
        [sys.executable, "-c", script, tmp_path / "blobs"], cwd=ROOT, check=True, capture_output=True, text=True, timeout=300
    )
    assert done.stdout == "[]\n"


def test_missing_credentials_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R28: before any page is tried."""
    for name in ("STORAGE_EMULATOR_HOST", "GOOGLE_CLOUD_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "missing.json"))
    gcs._client_of.cache_clear()
    with pytest.raises(ScribeError, match=r"^there are no credentials for the bucket: set GOOGLE_APPLICATION") as refused:
        open_store("gs://scans")
    assert refused.value.category is Category.UNAVAILABLE


def test_the_client_may_come_from_elsewhere(tmp_path: Path) -> None:
    """R28: as Dagster's own resource makes it."""
    with FakeGcs() as elsewhere:
        store = open_store(f"gs://scans?folder={tmp_path}/blobs", elsewhere.client)
        store.write(KEY, b"scan", "claim")
        assert cast(Any, store).bucket.read(KEY) == b"scan" and list(elsewhere.objects) == [KEY]
