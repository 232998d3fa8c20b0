"""The formats there are: how the files of each end, and who writes them. One revision gives the same bytes every time."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.exports.alto import write_alto
from scribe_pipeline.exports.document import Document, read_document
from scribe_pipeline.exports.hocr import write_hocr
from scribe_pipeline.exports.page_xml import write_page_xml
from scribe_pipeline.pages import Image, PageRevision

_MAX_BYTES = 32 * 1024**2


@dataclass(frozen=True)
class Format:
    """A format: the end of its files' names, its media type, and what writes it."""

    extension: str
    media_type: str
    write: Callable[[Document], bytes]


def _write_text(document: Document) -> bytes:
    """The lines' text, a line each; lines without text are left out."""
    return "".join(f"{line.text}\n" for line in document.lines if line.words).encode()


def _write_json(document: Document) -> bytes:
    """The AnnotationPage as it is stored."""
    return document.payload.encode()


FORMATS = {
    "alto": Format("alto.xml", "application/alto+xml", write_alto),
    "page": Format("page.xml", "application/vnd.prima.page+xml", write_page_xml),
    "hocr": Format("hocr", "text/vnd.hocr+html", write_hocr),
    "txt": Format("txt", "text/plain", _write_text),
    "json": Format("json", 'application/ld+json;profile="http://iiif.io/api/presentation/3/context.json"', _write_json),
}


def check_formats(names: Iterable[str]) -> None:
    """Raises ScribeError (invalid_argument) for a name that is no format's."""
    for name in names:
        if name not in FORMATS:
            raise ScribeError(Category.INVALID_ARGUMENT, f"there is no format '{name}'; there are: {', '.join(FORMATS)}")


def render(image: Image, page: PageRevision, names: Iterable[str] = tuple(FORMATS)) -> dict[str, bytes]:
    """Return the exports of a committed revision of the image's page by the names of their formats.

    Raises ScribeError (too_large) for a page of more than 100,000 words, or an export of more than 32 MiB.
    """
    document = read_document(image, page)
    exports = {name: FORMATS[name].write(document) for name in names}
    for name, data in exports.items():
        if len(data) > _MAX_BYTES:
            problem = (
                f"the {name} export of {image.label} has more than 32 MiB: look what happened to the page, or take another format"
            )
            raise ScribeError(Category.TOO_LARGE, problem)
    return exports
