"""Exports as files in a folder: their names and their contents."""

import itertools
import tempfile
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from uuid import UUID

from sqlalchemy import Engine

from scribe_pipeline.database import in_transaction
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.exports.formats import FORMATS, render
from scribe_pipeline.pages import load_images, load_revision

# A source file and the number of a page in it, from 1.
Place = tuple[str, int]


def write_exports(engine: Engine, folder: Path, pages: Mapping[UUID, int]) -> list[Path]:
    """Write every format of each page and return the files. `pages` says which revision of which image's page.

    Each file is whole or not there. Raises ScribeError: unavailable if the folder cannot be written to, too_large for a page
    that is no page any more.
    """
    check_folder(folder)
    images = in_transaction(engine, lambda connection: load_images(connection, list(pages)))
    stems = export_stems([(image.file, image.frame) for image in images])
    written = []
    for image in images:
        page = in_transaction(engine, partial(load_revision, image_id=image.id, revision=pages[image.id]))
        written += write_files(folder, stems[image.file, image.frame], render(image, page))
    return written


def write_files(folder: Path, stem: str, exports: Mapping[str, bytes]) -> list[Path]:
    """Write the exports of one page, by the names of their formats, and return the files. Raises ScribeError (unavailable)."""
    written = []
    for name, data in exports.items():
        target = folder / f"{stem}.{FORMATS[name].extension}"
        new = folder / f".{uuid.uuid4().hex}"
        try:
            new.write_bytes(data)
            new.replace(target)
        except OSError as error:
            raise ScribeError(Category.UNAVAILABLE, f"{target} cannot be written: {error.strerror}") from None
        finally:
            new.unlink(missing_ok=True)
        written.append(target)
    return written


def check_folder(folder: Path) -> None:
    """Make the folder if it is not there, and see that it can be written to. Raises ScribeError (unavailable)."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except FileExistsError:
        raise ScribeError(Category.UNAVAILABLE, f"the folder {folder} cannot be written to: it is a file") from None
    except OSError as error:
        raise ScribeError(Category.UNAVAILABLE, f"the folder {folder} cannot be written to: {error.strerror}") from None


def export_stems(places: Sequence[Place]) -> dict[Place, str]:
    """Return the name, without extension, of the exports of each page.

    It is the source file's name without its extension; with it, where two files would share a name; with its folder's names in
    front, where that is not enough. Further pages of a file have their number behind it. Letters of either case count as the
    same, since some file systems take them so.
    """
    frames: dict[str, list[int]] = {}
    for source, frame in places:
        frames.setdefault(source, []).append(frame)
    bases: dict[str, str] = {}

    def taken_by(source: str, base: str) -> set[str]:
        return {_numbered(base, frame).lower() for frame in frames[source]}

    for name in (lambda path: path.stem, lambda path: path.name, lambda path: "-".join(path.parts)):
        named = bases | {source: name(PurePosixPath(source)) for source in frames if source not in bases}
        count = Counter(itertools.chain.from_iterable(taken_by(*pair) for pair in named.items()))
        bases = {
            source: base
            for source, base in named.items()
            if source in bases or all(count[stem] == 1 for stem in taken_by(source, base))
        }
    for source in frames:
        if source not in bases:
            taken = set(itertools.chain.from_iterable(taken_by(*pair) for pair in bases.items()))
            candidates = (f"{PurePosixPath(source).name}-{number}" for number in itertools.count(2))
            bases[source] = next(base for base in candidates if not taken & taken_by(source, base))
    return {(source, frame): _numbered(bases[source], frame) for source, frame in places}


def _numbered(base: str, frame: int) -> str:
    return base if frame == 1 else f"{base}-{frame}"
