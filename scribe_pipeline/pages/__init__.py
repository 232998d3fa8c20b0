"""Images and their canonical AnnotationPages: profile, revisions and derived index. Who may write a page is decided elsewhere."""

from scribe_pipeline.pages.images import Image, canvas_uri, find_image, insert_image, load_image, load_images
from scribe_pipeline.pages.profile import (
    PageAnnotation,
    build_page,
    check_page,
    fill_lines,
    plain_text,
    read_annotations,
    read_lines,
)
from scribe_pipeline.pages.review import correction_distance, save_page
from scribe_pipeline.pages.revisions import Author, PageHead, PageRevision, create_page, load_head, load_revision, replace_page

__all__ = [
    "Author",
    "Image",
    "PageAnnotation",
    "PageHead",
    "PageRevision",
    "build_page",
    "canvas_uri",
    "check_page",
    "correction_distance",
    "create_page",
    "fill_lines",
    "find_image",
    "insert_image",
    "load_head",
    "load_image",
    "load_images",
    "load_revision",
    "plain_text",
    "read_annotations",
    "read_lines",
    "replace_page",
    "save_page",
]
