"""What the proofs of uploads have in common: time that passes, work that is finished, and what must be in the stores then."""

import hashlib
import os
import time
from pathlib import Path

import psycopg

from scribe_pipeline.ingest import Batch
from scribe_pipeline.storage import (
    UPLOAD,
    BlobStore,
    Removals,
    SharedBlobStore,
    audit_storage,
    drop_stray_copies,
    open_store,
    remove_due,
    upload_remover,
)
from scribe_pipeline.workspaces import sweep_reservations
from tests.conftest import broken_in
from tests.houses import House
from tests.work import Work

REFERRED = "SELECT object_key, sha256 FROM item_images UNION ALL SELECT object_key, sha256 FROM page_exports"
WAITING = "SELECT resource_key FROM resource_cleanup_outbox WHERE kind = 'upload_blob'"
_PAST = "clock_timestamp() - interval '1 second'"
_TIME_PASSES = f"""
    UPDATE resource_cleanup_outbox SET next_attempt_at = {_PAST} WHERE status <> 'processing';
    UPDATE resource_cleanup_outbox SET lease_until = {_PAST} WHERE status = 'processing';
    UPDATE ingest_batch_files SET lease_until = {_PAST} WHERE status = 'processing';
    UPDATE ingest_batch_files SET retry_after = NULL WHERE retry_after IS NOT NULL;
    UPDATE transcription_jobs SET lease_until = {_PAST} WHERE status = 'running';
    UPDATE transcription_jobs SET retry_after = NULL WHERE retry_after IS NOT NULL;
    UPDATE storage_reservations SET expires_at = {_PAST}
"""
_HOUR = 3600


class Depot:
    """A house and its stores, with nobody at work."""

    def __init__(self, house: House, database_url: str) -> None:
        self.house = house
        self.url = database_url
        self._watcher = psycopg.connect(database_url, autocommit=True)
        self.shared = isinstance(self.store, SharedBlobStore)

    @property
    def store(self) -> BlobStore:
        """The store, opened as it is opened now: a test may have made its clients hasty."""
        return open_store(self.house.store_url)

    @property
    def _stores(self) -> list[BlobStore]:
        """Those that have every object each."""
        store = self.store
        return [store.local, store.bucket] if isinstance(store, SharedBlobStore) else [store]

    def empty(self) -> None:
        """Begin anew."""
        self.house.empty()
        for found in list(self.store.stored()):
            self.store.delete(found.key)

    @property
    def temporaries(self) -> list[Path]:
        """What writers have left unfinished."""
        folder = Path(self.house.store_url.rpartition("?folder=")[2])
        return list(folder.glob(".scribe-upload-*"))

    def pass_time(self) -> None:
        """Let every deadline that rows have be over, and what is unfinished be old."""
        self._watcher.execute(_TIME_PASSES)
        for path in self.temporaries:
            os.utime(path, times=(0, time.time() - 2 * _HOUR))

    def clean(self) -> Removals:
        """Do what the dispatcher does, once."""
        self.store.sweep_temporaries(_HOUR)
        sweep_reservations(self.house.engine)
        return remove_due(self.house.engine, {UPLOAD: upload_remover(self.house.engine, self.store)})

    def finish(self, batch: Batch, rounds: int = 5) -> Batch:
        """Let time pass and workers work until the batch is over."""
        for _ in range(rounds):
            self.pass_time()
            if (batch := Work(self.house, batch).all()).finished:
                return batch
        raise AssertionError(f"batch {batch.id} is not over after {rounds} rounds")

    def close(self) -> None:
        """Give up the connections."""
        self._watcher.close()
        self.house.engine.dispose()

    def check_rows(self) -> None:
        """See that the invariants hold."""
        assert broken_in(self._watcher) == {}

    def check(self) -> None:
        """See that every object is whole and owned, that references lead to what they name, and that the invariants hold."""
        self.check_rows()
        referred = {row.object_key: row.sha256 for row in self.house.rows(REFERRED)}
        waiting = {row.resource_key for row in self.house.rows(WAITING)}
        for store in self._stores:
            there = {found.key for found in store.stored()}
            assert there <= referred.keys() | waiting, f"in {store} there are objects of nobody"
            assert referred.keys() <= there, f"in {store} objects are missing"
            for key in there:
                sha256 = hashlib.sha256(store.read(key)).hexdigest()
                assert key.startswith(sha256) and referred.get(key, sha256) == sha256

    def check_at_rest(self) -> None:
        """See that besides there is nothing that waits to be removed, or is unfinished, and that the audit says so."""
        self.check()
        assert audit_storage(self.house.engine, self.store) == []
        assert drop_stray_copies(self.house.engine, self.store) == 0
        assert self.house.rows(WAITING) == []
        assert self.temporaries == []
        assert self.house.value("SELECT count(*) FROM storage_reservations") == 0
