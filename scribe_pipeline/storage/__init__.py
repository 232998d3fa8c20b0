"""Where the bytes of scans are kept. An object is written once, under a name made here, and never changed.

Who owns an object is a matter of rows: those of the cleanup outbox, and those who work it off, are here too.
"""

from scribe_pipeline.storage.audit import Finding, audit_queries, audit_storage, named_queries
from scribe_pipeline.storage.blobs import BlobStore, LocalBlobStore, StoredObject, new_object_key
from scribe_pipeline.storage.cleanup import (
    SETTLING_SECONDS,
    UPLOAD,
    Blob,
    adopt_upload,
    give_up_blobs,
    hand_over_blobs,
    hand_over_projections,
    stage_blobs,
    stage_upload,
    take_back_blobs,
)
from scribe_pipeline.storage.gcs import GcsBlobStore
from scribe_pipeline.storage.opening import open_store, store_url
from scribe_pipeline.storage.removal import Removals, Remover, check_not_bare, drop_stray_copies, remove_due, upload_remover
from scribe_pipeline.storage.report import CleanupHealth, WorkspaceStorage, cleanup_health, workspace_storage
from scribe_pipeline.storage.shared import SharedBlobStore

__all__ = [
    "SETTLING_SECONDS",
    "UPLOAD",
    "Blob",
    "BlobStore",
    "CleanupHealth",
    "Finding",
    "GcsBlobStore",
    "LocalBlobStore",
    "Removals",
    "Remover",
    "SharedBlobStore",
    "StoredObject",
    "WorkspaceStorage",
    "adopt_upload",
    "audit_queries",
    "audit_storage",
    "check_not_bare",
    "cleanup_health",
    "drop_stray_copies",
    "give_up_blobs",
    "hand_over_blobs",
    "hand_over_projections",
    "named_queries",
    "new_object_key",
    "open_store",
    "remove_due",
    "stage_blobs",
    "stage_upload",
    "store_url",
    "take_back_blobs",
    "upload_remover",
    "workspace_storage",
]
