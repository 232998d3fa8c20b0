"""What a materialization tells of the pages that a run made: counts, timings, pictures and links. The rows are in the database."""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from uuid import UUID

import dagster as dg

from scribe_pipeline.exports import FORMATS, DerivedPage
from scribe_pipeline.ingest import RefusedFile, SegmentedPage
from scribe_pipeline.jobs import TranscribedPage
from scribe_pipeline.pages import Image

_MAX_ROWS = 50
_PNG = b"\x89PNG"


def ingestion_metadata(batch_id: UUID, images: Sequence[Image], refused: Sequence[RefusedFile]) -> dict[str, dg.MetadataValue]:
    """Return what is told of files that were checked."""
    metadata: dict[str, dg.MetadataValue] = {
        "batch": dg.MetadataValue.text(str(batch_id)),
        "images": dg.MetadataValue.int(len(images)),
        "bytes": dg.MetadataValue.int(sum(image.storage_bytes for image in images)),
        "refused": dg.MetadataValue.int(len(refused)),
    }
    if refused:
        metadata["refusals"] = markdown_table([{"file": file.label, "why": file.message} for file in refused])
    return metadata


def segmentation_metadata(batch_id: UUID, pages: Sequence[SegmentedPage]) -> dict[str, dg.MetadataValue]:
    """Return what is told of pages whose lines were found, with a picture of those that were drawn."""
    drawn = [(f"{page.image.label} ({len(page.lines)} lines)", page.preview) for page in pages if page.preview is not None]
    return {
        "batch": dg.MetadataValue.text(str(batch_id)),
        "pages": dg.MetadataValue.int(len(pages)),
        "lines": dg.MetadataValue.int(sum(len(page.lines) for page in pages)),
        "seconds_per_page": dg.MetadataValue.float(sum(page.seconds for page in pages) / len(pages)),
        "preview": markdown_pictures(drawn),
    }


def transcription_metadata(pages: Sequence[TranscribedPage], batch_id: UUID | None = None) -> dict[str, dg.MetadataValue]:
    """Return what is told of pages that were read."""
    drafts = [page for page in pages if page.error_category is None]
    confidences = [page.mean_confidence for page in drafts if page.mean_confidence is not None]
    metadata: dict[str, dg.MetadataValue] = {
        "pages": dg.MetadataValue.int(len(drafts)),
        "failed_attempts": dg.MetadataValue.int(len(pages) - len(drafts)),
        "lines": dg.MetadataValue.int(sum(page.lines for page in drafts)),
        "failed_lines": dg.MetadataValue.int(sum(page.failed_lines for page in drafts)),
        "seconds_per_page": dg.MetadataValue.float(sum(page.seconds for page in pages) / len(pages)),
        "drafts": markdown_table(
            [
                {
                    "page": page.image.label,
                    "lines": page.lines,
                    "failed lines": page.failed_lines,
                    "confidence": "" if page.mean_confidence is None else f"{page.mean_confidence:.2f}",
                    "seconds": f"{page.seconds:.1f}",
                    "id": page.image.page_id,
                }
                for page in drafts
            ]
        ),
    }
    if batch_id is not None:
        metadata["batch"] = dg.MetadataValue.text(str(batch_id))
    if confidences:
        metadata["mean_confidence"] = dg.MetadataValue.float(sum(confidences) / len(confidences))
    return metadata


def export_metadata(pages: Sequence[DerivedPage], refused: Sequence[str], seconds: float) -> dict[str, dg.MetadataValue]:
    """Return what is told of pages whose exports were made."""
    exports = [export for page in pages for export in page.exports]
    made = Counter(export.format for export in exports)
    metadata: dict[str, dg.MetadataValue] = {
        "pages": dg.MetadataValue.int(len(pages)),
        "bytes": dg.MetadataValue.int(sum(export.size_bytes for export in exports)),
        "refused": dg.MetadataValue.int(len(refused)),
        "seconds_per_page": dg.MetadataValue.float(seconds / (len(pages) + len(refused))),
        "exports": markdown_table(
            [
                {
                    "page": page.image.label,
                    "revision": page.revision,
                    "formats": ", ".join(export.format for export in page.exports),
                    "bytes": sum(export.size_bytes for export in page.exports),
                    "id": page.image.page_id,
                }
                for page in pages
            ]
        ),
    }
    for name in FORMATS:
        metadata[name] = dg.MetadataValue.int(made[name])
    if refused:
        metadata["refusals"] = markdown_table([{"why": why} for why in refused])
    return metadata


def markdown_pictures(pictures: Sequence[tuple[str, bytes]]) -> dg.MetadataValue:
    """Return JPEGs or PNGs with what each shows above it."""
    return dg.MetadataValue.md("\n\n".join(f"**{name}**\n\n![{name}]({_data_url(picture)})" for name, picture in pictures))


def _data_url(picture: bytes) -> str:
    media_type = "image/png" if picture.startswith(_PNG) else "image/jpeg"
    return f"data:{media_type};base64,{base64.b64encode(picture).decode()}"


def markdown_table(rows: Sequence[Mapping[str, object]]) -> dg.MetadataValue:
    """Return rows, all with the same keys, as a table; of many rows the first ones."""
    columns = list(rows[0]) if rows else []
    lines = [" | ".join(columns), " | ".join("---" for _ in columns)]
    lines += [" | ".join(str(row[column]).replace("|", "\\|") for column in columns) for row in rows[:_MAX_ROWS]]
    if len(rows) > _MAX_ROWS:
        lines.append(f"... and {len(rows) - _MAX_ROWS} more")
    return dg.MetadataValue.md("\n".join(lines))
