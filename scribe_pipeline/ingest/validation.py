"""Checking a file before any model sees it: what a worker process does, and what it says. No row is known here."""

import hashlib
from dataclasses import dataclass

from scribe_pipeline.engines import ImageFacts, ImageLimits, Tiff, image_extension, inspect_image
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.ingest.collect import local_path
from scribe_pipeline.ingest.names import page_in_words
from scribe_pipeline.storage import open_store

# What the pages of one file may hold together, in files of the largest size; more than one, as pages may share what they hold.
_MOST_COPIES = 3


@dataclass(frozen=True)
class PageSource:
    """A page as it was declared: the file it is in, which of the file's pages it is, and the hash of its bytes.

    The bytes of page 1 are the file's; those of a later page, what `Tiff.page` takes out of the file.
    """

    filename: str
    uri: str
    frame: int
    sha256: str


@dataclass(frozen=True)
class FurtherPage:
    """A page after the first, as its file holds it."""

    size: int
    sha256: str


@dataclass(frozen=True)
class CheckedPage:
    """What was found: facts of a page that is stored now, or why it is refused; and of page 1, the file's further pages."""

    found: ImageFacts | ScribeError
    further: tuple[FurtherPage, ...]


def validate_page(source: PageSource, limits: ImageLimits, store_url: str, key: str | None, claim: str) -> CheckedPage:
    """Check a page and store its bytes under `key`; a page 1 that is refused as damaged does not harm the others.

    One that ends the process does: nobody learns of the others then.

    Raises ScribeError for a file that is not there as it was declared or has too many pages, and for a store that is not there.
    """
    data, name = _read(source, limits), source.filename
    further: tuple[FurtherPage, ...] = ()
    if source.frame > 1:
        data, name = Tiff(data).page(source.frame), page_in_words(source.filename, source.frame)
    if len(data) <= limits.max_bytes and hashlib.sha256(data).hexdigest() != source.sha256:
        raise ScribeError(Category.UNREADABLE, f"{source.filename} has changed since it was named: run it with --again")
    if source.frame == 1 and (further := _further_pages(data, source.filename, limits)):
        name = page_in_words(source.filename, 1)
    try:
        if source.frame > 1 and not data:
            raise ScribeError(Category.DAMAGED, f"{name} is damaged: it cannot be told from the rest of the file")
        facts = inspect_image(data, name, limits)
        if key is None or not key.endswith(f".{facts.extension}"):
            raise ScribeError(Category.DAMAGED, f"{name} does not begin like the {facts.media_type} that it is")
    except ScribeError as refusal:
        return CheckedPage(refusal, further)
    open_store(store_url).write(key, data, claim)
    return CheckedPage(facts, further)


def _read(source: PageSource, limits: ImageLimits) -> bytes:
    try:
        with local_path(source.uri).open("rb") as file:
            return file.read(limits.max_bytes + 1)  # no more than it takes to see that it is too large
    except OSError:
        problem = f"{source.filename} cannot be read any more: put it back and run it with --again"
        raise ScribeError(Category.UNREADABLE, problem) from None


def _further_pages(data: bytes, filename: str, limits: ImageLimits) -> tuple[FurtherPage, ...]:
    """Return what a TIFF holds behind its first page. Raises ScribeError (too_large)."""
    if image_extension(data[:16]) != "tiff" or len(data) > limits.max_bytes:
        return ()
    tiff = Tiff(data)
    if tiff.count > limits.max_pages:
        raise ScribeError(Category.TOO_LARGE, f"{filename} has more than the {limits.max_pages:,} pages allowed")
    pages, room = [], _MOST_COPIES * limits.max_bytes
    for number in range(2, tiff.count + 1):
        page = tiff.page(number)
        pages.append(FurtherPage(len(page), hashlib.sha256(page).hexdigest()))
        room -= len(page)
        if room < 0:
            raise ScribeError(Category.TOO_LARGE, f"{filename} has pages that are much larger than the file itself")
    return tuple(pages)
