"""Files for other programs, made from one committed revision of a page: ALTO, PAGE, hOCR, text and AnnotationPage."""

from scribe_pipeline.exports.committed import current_page
from scribe_pipeline.exports.derive import DerivedPage, derive_exports, due_exports
from scribe_pipeline.exports.files import check_folder, export_stems, write_exports, write_files
from scribe_pipeline.exports.formats import FORMATS, check_formats, render

__all__ = [
    "FORMATS",
    "DerivedPage",
    "check_folder",
    "check_formats",
    "current_page",
    "derive_exports",
    "due_exports",
    "export_stems",
    "render",
    "write_exports",
    "write_files",
]
