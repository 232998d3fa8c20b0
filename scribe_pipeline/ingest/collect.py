"""From paths to a declared list of files: names, sizes, hashes. Whether a file is a good scan is validation's to say."""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from natsort import natsorted, ns

from scribe_pipeline.engines import image_extension
from scribe_pipeline.errors import Category, ScribeError

_IMAGE_EXTENSIONS = {f".{name}" for name in ("bmp", "gif", "heic", "heif", "jp2", "jpeg", "jpg", "png", "tif", "tiff", "webp")}


@dataclass(frozen=True)
class DeclaredFile:
    """A file as it was when it was named: `name` is how reports call it, its path below the folder that was given."""

    name: str
    path: Path
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
        if path.is_dir():
            for file in _files_below(path):
                if _looks_like_image(file):
                    found.setdefault(file.resolve(), file.relative_to(path).as_posix())
                else:
                    passed_over.append(file.relative_to(path).as_posix())
        elif path.exists():
            found.setdefault(path.resolve(), path.name)
        else:
            raise ScribeError(Category.INVALID_ARGUMENT, f"{path} is not there: check its name")
    if not found:
        raise ScribeError(Category.UNSUPPORTED_TYPE, f"no image in {', '.join(map(str, paths))}: name a scan or a folder of scans")
    item = paths[0].resolve().name or str(paths[0])
    return Collection(item, tuple(_declare(path, name) for path, name in _told_apart(found).items()), tuple(passed_over))


def _told_apart(found: dict[Path, str]) -> dict[Path, str]:
    """Put more of the path in front of names that several files share, until no two are the same."""
    names = dict(found)
    while shared := {name for name, count in Counter(names.values()).items() if count > 1}:
        for path, name in names.items():
            if name in shared:
                depth = len(PurePosixPath(name).parts)
                names[path] = PurePosixPath(*path.parts[-depth - 1 :]).as_posix()
    return names


def _files_below(folder: Path) -> Iterator[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    shown = [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    yield from natsorted(sorted(shown), key=lambda path: path.relative_to(folder).as_posix(), alg=ns.IGNORECASE)


def _looks_like_image(path: Path) -> bool:
    if path.suffix.lower() in _IMAGE_EXTENSIONS:
        return True
    try:
        with path.open("rb") as file:
            start = file.read(16)
    except OSError:
        raise ScribeError(Category.UNREADABLE, f"{path} cannot be read: check its permissions") from None
    return image_extension(start) is not None


def _declare(path: Path, name: str) -> DeclaredFile:
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return DeclaredFile(name, path, file.tell(), digest)
    except OSError:
        raise ScribeError(Category.UNREADABLE, f"{path} cannot be read: check its permissions") from None
