"""From files to pages: batches, validation, segmentation. What reads the lines afterwards is the job queue's."""

from scribe_pipeline.ingest.batches import (
    Batch,
    due_batches,
    list_batches,
    load_batch,
    open_batch,
    raise_generation,
    request_batch,
    seconds_until_due,
    settle_batch,
)
from scribe_pipeline.ingest.cancel import cancel_batch
from scribe_pipeline.ingest.collect import Collection, collect, local_path
from scribe_pipeline.ingest.items import ItemDetail, ItemImage, ItemListing, delete_item, list_items, load_item
from scribe_pipeline.ingest.report import PageReport, report_batch
from scribe_pipeline.ingest.work import IngestSettings, RefusedFile, SegmentationSource, SegmentedPage, ValidationSource

__all__ = [
    "Batch",
    "Collection",
    "IngestSettings",
    "ItemDetail",
    "ItemImage",
    "ItemListing",
    "PageReport",
    "RefusedFile",
    "SegmentationSource",
    "SegmentedPage",
    "ValidationSource",
    "cancel_batch",
    "collect",
    "delete_item",
    "due_batches",
    "list_batches",
    "list_items",
    "load_batch",
    "load_item",
    "local_path",
    "open_batch",
    "raise_generation",
    "report_batch",
    "request_batch",
    "seconds_until_due",
    "settle_batch",
]
