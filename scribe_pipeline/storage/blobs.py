"""What a blob store does, the identity of an object, and the store that is a folder."""

import os
import re
import stat
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from scribe_pipeline.errors import Category, ScribeError

TEMPORARY_PREFIX = ".scribe-upload-"

_KEY = re.compile(r"[0-9a-f]{64}-[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\.[a-z0-9]{2,5}")


def new_object_key(sha256: str, extension: str) -> str:
    """Return a name that says what bytes it holds and is never given twice: identical bytes get different objects."""
    return f"{sha256}-{uuid.uuid4()}.{extension}"


def is_object_key(name: str) -> bool:
    """Whether the name has the form of those that `new_object_key` gives."""
    return _KEY.fullmatch(name) is not None


def check_object_key(key: str) -> None:
    """See that nothing but an object is written or removed. Raises ScribeError (invalid argument) for any other name."""
    if not is_object_key(key):
        raise ScribeError(Category.INVALID_ARGUMENT, f"{key!r} is not the name of a stored scan, so nothing is done with it")


@dataclass(frozen=True)
class StoredObject:
    """An object that is there, and its size in bytes."""

    key: str
    size: int


class BlobStore(Protocol):
    """Objects by key. `claim` names whoever is writing, so that what a dead writer left behind can be found.

    Every method raises ScribeError (unavailable) if the store is not there or cannot be used.
    """

    def write(self, key: str, data: bytes, claim: str) -> None:
        """Store `data` whole or not at all; if it fails for want of an answer, all of it may still come to be there later.

        Raises FileExistsError if the key is taken, ScribeError: invalid argument if it is no object's, unavailable for no room.
        """

    def read(self, key: str) -> bytes:
        """Return the object's bytes.

        Raises ScribeError: unreadable if there is no such object, transport if reading fails, unavailable if there is no store.
        """

    def delete(self, key: str) -> None:
        """Remove the object for good; one that is not there is no error.

        Raises ScribeError (invalid argument) for a key that is no object's.
        """

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""

    def stored(self) -> Iterator[StoredObject]:
        """Go through all objects, each once, in no order; whatever else lies in the same place is passed over."""

    def remove_temporaries(self, claim: str) -> None:
        """Remove what writers under this claim left unfinished."""

    def sweep_temporaries(self, older_than_seconds: float) -> int:
        """Remove what any writer left unfinished so long ago, and return how many files that were."""

    def check(self) -> None:
        """See that objects can be written."""


class LocalBlobStore:
    """A folder with one file an object."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self) -> None:
        """Make the folder if it is not there, and see that it can be written to."""
        with self._our_errors("written to"):
            self.folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.folder):
                pass

    def write(self, key: str, data: bytes, claim: str) -> None:
        """Write beside the target, then link: a link, unlike a rename, fails if the name is taken."""
        check_object_key(key)
        target = self.folder / key
        temporary = self.folder / f"{TEMPORARY_PREFIX}{claim}-{uuid.uuid4().hex}"
        linked = False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with temporary.open("xb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.link(temporary, target)
            linked = True
            self._sync_folder()
        except OSError as error:
            if linked:
                # the name may be lost in a power cut, so nobody may come to rely on it
                with suppress(OSError):
                    target.unlink(missing_ok=True)
            elif isinstance(error, FileExistsError) and os.path.lexists(target):
                raise
            raise self._unusable("written to", error) from None
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
        """Remove the object's file, and see that a power cut does not bring it back.

        A folder that is not there is no folder without the object: it may be mounted again.
        """
        check_object_key(key)
        with self._our_errors("written to"):
            (self.folder / key).unlink(missing_ok=True)
            # also for a file that is not there: an earlier attempt may have failed between the two
            self._sync_folder()

    def exists(self, key: str) -> bool:
        """Whether there is a file of that name."""
        with self._our_errors("read"):
            return (self.folder / key).is_file()

    def stored(self) -> Iterator[StoredObject]:
        """Go through the regular files that are named as objects."""
        for entry in self._files():
            if is_object_key(entry.name):
                yield StoredObject(entry.name, entry.stat(follow_symlinks=False).st_size)

    def remove_temporaries(self, claim: str) -> None:
        """Remove the claim's temporary files."""
        with self._our_errors("written to"):
            for path in self.folder.glob(f"{TEMPORARY_PREFIX}{claim}-*"):
                path.unlink(missing_ok=True)

    def sweep_temporaries(self, older_than_seconds: float) -> int:
        """Remove temporary files that nobody has written to for so long; links and folders of such names stay."""
        oldest = time.time() - older_than_seconds
        removed = 0
        for entry in self._files():
            if entry.name.startswith(TEMPORARY_PREFIX) and entry.stat(follow_symlinks=False).st_mtime < oldest:
                with self._our_errors("written to"), suppress(FileNotFoundError):
                    os.unlink(entry)
                    removed += 1
        return removed

    def _files(self) -> Iterator[os.DirEntry[str]]:
        """The regular files, links not followed; one may vanish meanwhile, as may the folder not be there yet."""
        with self._our_errors("read"), suppress(FileNotFoundError), os.scandir(self.folder) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    if stat.S_ISREG(entry.stat(follow_symlinks=False).st_mode):
                        yield entry

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _our_errors(self, deed: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise self._unusable(deed, error) from None

    def _unusable(self, deed: str, error: OSError) -> ScribeError:
        return ScribeError(Category.UNAVAILABLE, f"the folder {self.folder} for scans cannot be {deed}: {error.strerror}")
