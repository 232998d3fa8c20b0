"""From paths to a declared list of files: names, sizes, hashes. Whether a file is a good scan is validation's to say."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from urllib.parse import unquote_to_bytes

from natsort import natsorted, ns

from scribe_pipeline.engines import image_extension
from scribe_pipeline.errors import Category, ScribeError

# By these names a file is an image whatever it holds; what cannot be read of it is refused, not passed over.
_IMAGE_EXTENSIONS = {
    f".{name}"
    for name in (
        "avif", "bmp", "gif", "heic", "heif", "j2k", "jp2", "jpeg", "jpf", "jpg", "jpx", "png", "tif", "tiff", "webp",
    )
}  # fmt: skip


@dataclass(frozen=True)
class DeclaredFile:
    """A file as it was when it was named: `name` is how reports call it, its path below the folder that was given.

    What cannot be printed or is no UTF-8 stands in a name as an escape; `uri` leads to the file all the same.
    """

    name: str
    uri: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Collection:
    """What a request's paths hold: the files to take, in order, and those in folders that were passed over."""

    name: str
    files: tuple[DeclaredFile, ...]
    passed_over: tuple[str, ...]


def collect(paths: Sequence[Path]) -> Collection:
    """Declare the files at these paths: a file named is always taken, a folder gives the images at any depth in natural order.

    Raises ScribeError for a path that is not there or cannot be read, and when no image is left.
    """
    found: dict[Path, str] = {}
    passed_over: list[str] = []
    for path in paths:
        with _readable(path):
            _look(path, found, passed_over)
    if not found:
        raise ScribeError(Category.UNSUPPORTED_TYPE, f"no image in {', '.join(map(str, paths))}: name a scan or a folder of scans")
    item = paths[0].resolve().name or str(paths[0])
    return Collection(
        _printable(item),
        tuple(_declare(path, name) for path, name in _told_apart(found).items()),
        tuple(map(_printable, passed_over)),
    )


def _told_apart(found: dict[Path, str]) -> dict[Path, str]:
    """Put more of the path in front of names that several files share, until no two are the same."""
    names = dict(found)
    while shared := {name for name, count in Counter(names.values()).items() if count > 1}:
        for path, name in names.items():
            if name in shared:
                depth = len(PurePosixPath(name).parts)
                names[path] = PurePosixPath(*path.parts[-depth - 1 :]).as_posix()
    return names


def local_path(uri: str) -> Path:
    """Return the path that a declared file's URI names."""
    return Path(os.fsdecode(unquote_to_bytes(uri.removeprefix("file://"))))


def _printable(name: str) -> str:
    # a backslash is escaped too, so that no two names become the same
    return "".join(char if char.isprintable() and char != "\\" else char.encode("unicode_escape").decode() for char in name)


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        place = _printable(os.fsdecode(error.filename or path))
        raise ScribeError(Category.UNREADABLE, f"{place} cannot be read: {error.strerror}") from None


def _look(path: Path, found: dict[Path, str], passed_over: list[str]) -> None:
    if path.is_dir():
        for file in _files_below(path):
            name = file.relative_to(path).as_posix()
            if file.is_file() and _looks_like_image(file):
                found.setdefault(file.resolve(), name)
            else:
                passed_over.append(name)
    elif path.is_file():
        found.setdefault(path.resolve(), path.name)
    else:
        problem = "is no file" if path.exists() else "is not there"
        raise ScribeError(Category.INVALID_ARGUMENT, f"{_printable(str(path))} {problem}: check its name")


def _files_below(folder: Path) -> list[Path]:
    """Return the files in a folder at any depth, and links that lead nowhere, in natural order; hidden ones are left out."""
    files = []
    for parent, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        files += [Path(parent, name) for name in names if not name.startswith(".")]
    files = sorted(path for path in files if path.is_file() or path.is_symlink())
    return natsorted(files, key=lambda path: path.relative_to(folder).as_posix(), alg=ns.IGNORECASE)


def _refuse(error: OSError) -> None:
    raise error


def _looks_like_image(path: Path) -> bool:
    if path.suffix.lower() in _IMAGE_EXTENSIONS:
        return True
    with path.open("rb") as file:
        return image_extension(file.read(16)) is not None


def _declare(path: Path, name: str) -> DeclaredFile:
    with _readable(path), path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return DeclaredFile(_printable(name), path.as_uri(), file.tell(), digest)
