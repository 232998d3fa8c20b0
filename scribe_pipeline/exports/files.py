"""Exports as files in a folder: their names and their contents."""

import itertools
import tempfile
import uuid
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.pages import plain_text


def write_exports(folder: Path, payloads: Mapping[str, str]) -> list[Path]:
    """Write the text and the AnnotationPage of each page and return the files. `payloads` maps source files to page payloads.

    Each file is whole or not there. Raises ScribeError (unavailable) if the folder cannot be written to.
    """
    check_folder(folder)
    stems = export_stems(list(payloads))
    written = []
    for source, payload in payloads.items():
        for extension, text in (("txt", plain_text(payload)), ("json", payload)):
            target = folder / f"{stems[source]}.{extension}"
            new = folder / f".{uuid.uuid4().hex}"
            try:
                new.write_text(text, "utf-8")
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
    except OSError as error:
        raise ScribeError(Category.UNAVAILABLE, f"the folder {folder} cannot be written to: {error.strerror}") from None


def export_stems(sources: list[str]) -> dict[str, str]:
    """Return the name, without extension, of each source file's exports.

    It is the file's name without its extension; with it, where two would be the same; with its folder's names in front, where
    that is not enough. Letters of either case count as the same, since some file systems take them so.
    """
    stems: dict[str, str] = {}
    left = sources
    for name in (lambda path: path.stem, lambda path: path.name, lambda path: "-".join(path.parts)):
        named = {source: name(PurePosixPath(source)) for source in left}
        count = Counter(stem.lower() for stem in named.values()) + Counter(stem.lower() for stem in stems.values())
        stems |= {source: stem for source, stem in named.items() if count[stem.lower()] == 1}
        left = [source for source in left if source not in stems]
    for source in left:
        taken = {stem.lower() for stem in stems.values()}
        numbered = (f"{PurePosixPath(source).name}-{number}" for number in itertools.count(2))
        stems[source] = next(stem for stem in numbered if stem.lower() not in taken)
    return stems
