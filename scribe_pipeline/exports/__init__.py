"""Files for other programs, made from one committed revision of a page."""

from scribe_pipeline.exports.files import check_folder, write_exports

__all__ = ["check_folder", "write_exports"]
