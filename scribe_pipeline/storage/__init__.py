"""Where the bytes of scans are kept. An object is written once, under a name made here, and never changed."""

from scribe_pipeline.storage.blobs import BlobStore, LocalBlobStore, new_object_key, open_store, store_url
from scribe_pipeline.storage.cleanup import Blob, hand_over_blobs, take_back_blobs

__all__ = ["Blob", "BlobStore", "LocalBlobStore", "hand_over_blobs", "new_object_key", "open_store", "store_url", "take_back_blobs"]
