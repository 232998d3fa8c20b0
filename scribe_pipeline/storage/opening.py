"""Which store a configuration names. Between processes it goes as a string, which each opens for itself."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage.blobs import BlobStore, LocalBlobStore
from scribe_pipeline.storage.gcs import GcsBlobStore, open_client, process_client
from scribe_pipeline.storage.shared import SharedBlobStore

_BUCKET = re.compile(r"gs://(?P<bucket>[a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(/(?P<prefix>[^?]*))?(\?folder=(?P<folder>/.+))?")


def store_url(settings: Settings) -> str:
    """Return where scans are kept, for `open_store`; beside a bucket it names the local folder.

    Raises ScribeError (invalid argument) for a bucket that is not named as one.
    """
    folder = str(settings.home / "blobs")
    url = settings.blob_url or folder
    if not url.startswith("gs://"):
        return url
    if _bucket(url)["folder"] is not None:
        raise _misnamed(url)
    return f"{url}?folder={quote(folder)}"


def open_store(url: str, client: Callable[[], Any] = process_client) -> BlobStore:
    """Return the store that a path or a URL names; `client` gives the client for a bucket, and is not called without one.

    Raises ScribeError: invalid argument for a kind of store that is not known, unavailable if a bucket cannot be opened.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        return LocalBlobStore(Path(url).expanduser())
    if scheme == "gs":
        named = _bucket(url)
        bucket = GcsBlobStore(open_client(client), named["bucket"], (named["prefix"] or "").strip("/"))
        return SharedBlobStore(LocalBlobStore(Path(unquote(named["folder"]))), bucket) if named["folder"] else bucket
    if scheme != "file" or not rest.startswith("/"):
        raise ScribeError(Category.INVALID_ARGUMENT, f"SCRIBE_BLOB_URL must name a folder or gs://bucket/prefix, not {scheme}://")
    return LocalBlobStore(Path(unquote(rest)))


def _bucket(url: str) -> re.Match[str]:
    named = _BUCKET.fullmatch(url)
    if named is None:
        raise _misnamed(url)
    return named


def _misnamed(url: str) -> ScribeError:
    return ScribeError(Category.INVALID_ARGUMENT, f"SCRIBE_BLOB_URL must be gs://bucket or gs://bucket/prefix, not {url}")
