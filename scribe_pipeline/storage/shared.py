"""The local folder and the bucket as one store: the folder is near, the bucket is what all machines have in common."""

from collections.abc import Iterator
from contextlib import suppress

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage.blobs import BlobStore, StoredObject


class SharedBlobStore:
    """Objects are written to the folder, then to the bucket, and are read from whichever has them, the folder first."""

    def __init__(self, local: BlobStore, bucket: BlobStore) -> None:
        self.local = local
        self.bucket = bucket

    def check(self) -> None:
        """See that both can be written to."""
        self.local.check()
        self.bucket.check()

    def write(self, key: str, data: bytes, claim: str) -> None:
        """Store `data` in both, or, as far as is known, in neither."""
        self.local.write(key, data, claim)
        try:
            self.bucket.write(key, data, claim)
        except BaseException:
            # if even that fails, the caller's own cleanup is left, and why the bucket took nothing is what he must hear
            with suppress(ScribeError):
                self.local.delete(key)
            raise

    def read(self, key: str) -> bytes:
        """Return the object's bytes; where the folder does not have them, the bucket's word counts."""
        try:
            return self.local.read(key)
        except ScribeError as near:
            try:
                return self.bucket.read(key)
            except ScribeError as far:
                # a folder may hold what is older than the bucket, and what cannot be read just now is not lost
                if near.category is Category.TRANSPORT and far.category is Category.UNREADABLE:
                    raise near from None
                raise far from None

    def delete(self, key: str) -> None:
        """Remove the object from the bucket, which is more likely to fail, then from the folder if this machine's has it."""
        self.bucket.delete(key)
        if self.local.exists(key):
            self.local.delete(key)

    def exists(self, key: str) -> bool:
        """Whether either has it."""
        return self.local.exists(key) or self.bucket.exists(key)

    def stored(self) -> Iterator[StoredObject]:
        """Go through the objects of both; one that is in both is told of once."""
        near = set()
        for found in self.local.stored():
            near.add(found.key)
            yield found
        yield from (found for found in self.bucket.stored() if found.key not in near)

    def remove_temporaries(self, claim: str) -> None:
        """Remove the claim's temporary files."""
        self.local.remove_temporaries(claim)

    def sweep_temporaries(self, older_than_seconds: float) -> int:
        """Remove old temporary files, and return how many."""
        return self.local.sweep_temporaries(older_than_seconds)
