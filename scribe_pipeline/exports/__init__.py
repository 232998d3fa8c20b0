"""Files for other programs, made from one committed revision of a page."""

from scribe_pipeline.exports.files import write_exports

__all__ = ["write_exports"]
