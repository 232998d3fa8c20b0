"""Blob stores behind one protocol, and the identity of an object."""

import os
import tempfile
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Protocol
from urllib.parse import unquote

from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category, ScribeError

TEMPORARY_PREFIX = ".scribe-upload-"


def new_object_key(sha256: str, extension: str) -> str:
    """Return a name that says what bytes it holds and is never given twice: identical bytes get different objects."""
    return f"{sha256}-{uuid.uuid4()}.{extension}"


class BlobStore(Protocol):
    """Objects by key. `claim` names whoever is writing, so that what a dead writer left behind can be found."""

    def write(self, key: str, data: bytes, claim: str) -> None:
        """Store `data` whole or not at all. Raises FileExistsError if the key is taken, ScribeError (unavailable) for no room."""

    def read(self, key: str) -> bytes:
        """Return the object's bytes.

        Raises ScribeError: unreadable if there is no such object, transport if reading fails, unavailable if there is no store.
        """

    def delete(self, key: str) -> None:
        """Remove the object; one that is not there is no error."""

    def remove_temporaries(self, claim: str) -> None:
        """Remove what writers under this claim left unfinished."""

    def check(self) -> None:
        """See that objects can be written. Raises ScribeError (unavailable)."""


class LocalBlobStore:
    """A folder with one file an object."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self) -> None:
        """Make the folder if it is not there, and see that it can be written to."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass
        except OSError as error:
            raise self._unwritable(error) from None

    def write(self, key: str, data: bytes, claim: str) -> None:
        """Write beside the target, then link: a link, unlike a rename, fails if the name is taken."""
        temporary = self.folder / f"{TEMPORARY_PREFIX}{claim}-{uuid.uuid4().hex}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, self.folder / key)
            self._sync_folder()
        except OSError as error:
            if (self.folder / key).exists():
                raise
            raise self._unwritable(error) from None
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)

    def read(self, key: str) -> bytes:
        """Return the object's bytes."""
        try:
            return (self.folder / key).read_bytes()
        except FileNotFoundError:
            if not self.folder.is_dir() or next(self.folder.iterdir(), None) is None:
                problem = f"there are no scans in {self.folder}: is SCRIBE_BLOB_URL the right folder, and mounted?"
                raise ScribeError(Category.UNAVAILABLE, problem) from None
            raise ScribeError(Category.UNREADABLE, f"the stored scan {key} is not there") from None
        except OSError:
            raise ScribeError(Category.TRANSPORT, f"the stored scan {key} cannot be read just now") from None

    def delete(self, key: str) -> None:
        """Remove the object's file."""
        (self.folder / key).unlink(missing_ok=True)

    def remove_temporaries(self, claim: str) -> None:
        """Remove the claim's temporary files."""
        for path in self.folder.glob(f"{TEMPORARY_PREFIX}{claim}-*"):
            path.unlink(missing_ok=True)

    def _unwritable(self, error: OSError) -> ScribeError:
        return ScribeError(Category.UNAVAILABLE, f"the folder {self.folder} for scans cannot be written to: {error.strerror}")

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def store_url(settings: Settings) -> str:
    """Return where scans are kept."""
    return settings.blob_url or str(settings.home / "blobs")


def open_store(url: str) -> BlobStore:
    """Return the store that a URL or a path names. Raises ScribeError for a kind of store that is not known."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return LocalBlobStore(Path(url).expanduser())
    if scheme != "file" or not rest.startswith("/"):
        raise ScribeError(Category.INVALID_ARGUMENT, f"SCRIBE_BLOB_URL must name a folder, not {scheme}://")
    return LocalBlobStore(Path(unquote(rest)))
