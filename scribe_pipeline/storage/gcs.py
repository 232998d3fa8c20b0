"""Google Cloud Storage: the store that is a bucket. Its client is imported only when one is opened, and its errors stay here."""

import base64
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from io import BytesIO
from typing import Any

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage.blobs import StoredObject, check_object_key, is_object_key

_DELETE_ROUNDS = 5
_CHECK_NAME = ".scribe-check"


class GcsBlobStore:
    """A bucket, or the part of it under `prefix`, with one object a key.

    `client` is a `google.cloud.storage.Client`. A request that gets no answer within `timeout` seconds, or one that says to come
    again, is repeated: after about `pause` seconds, then after twice as many, and so on until `patience` seconds are over.
    """

    def __init__(
        self, client: Any, bucket: str, prefix: str = "", *, patience: float = 30, pause: float = 0.5, timeout: float = 20
    ) -> None:
        from google.cloud.storage.retry import DEFAULT_RETRY

        self.url = f"gs://{bucket}/{prefix}".rstrip("/")
        self._prefix = f"{prefix}/" if prefix else ""
        self._client = client
        self._bucket = client.bucket(bucket)
        retry = DEFAULT_RETRY.with_delay(initial=pause, maximum=8).with_timeout(patience)
        self._bounds = {"timeout": timeout, "retry": retry}

    def check(self) -> None:
        """Create an empty object and remove it; its name is always the same, so that no two are ever left behind."""
        with self._our_errors():
            self._create(self._prefix + _CHECK_NAME, b"")
            self._remove(self._prefix + _CHECK_NAME)

    def write(self, key: str, data: bytes, claim: str) -> None:
        """Create the object, whose name must be free, and see that what is stored are these bytes."""
        check_object_key(key)
        with self._our_errors():
            created, stored = self._create(self._prefix + key, data)
            if stored is not None and (stored.size, stored.crc32c) == (len(data), _crc32c(data)):
                # if it was not created now, then by this very call: the first answer was lost, and it was repeated
                return
            if created:
                self._remove(self._prefix + key)
                raise ScribeError(Category.UNAVAILABLE, f"the bucket {self.url} did not keep {key} as it was sent: try again")
        raise FileExistsError(f"there is a stored scan {key} in {self.url} already")

    def read(self, key: str) -> bytes:
        """Return the object's bytes."""
        from google.api_core.exceptions import NotFound

        with self._our_errors(Category.TRANSPORT):
            try:
                # in one piece: pieces that are fetched after an interruption would not be compared with the checksum
                blob = self._bucket.blob(self._prefix + key)
                data: bytes = blob.download_as_bytes(checksum="crc32c", single_shot_download=True, **self._bounds)
                return data
            except NotFound:
                empty = self._is_empty()
        if empty:
            raise ScribeError(Category.UNAVAILABLE, f"there are no scans in {self.url}: is SCRIBE_BLOB_URL right?")
        raise ScribeError(Category.UNREADABLE, f"the stored scan {key} is not there")

    def delete(self, key: str) -> None:
        """Remove the object in the generation that is found there."""
        check_object_key(key)
        with self._our_errors():
            self._remove(self._prefix + key)

    def exists(self, key: str) -> bool:
        """Whether there is such an object."""
        with self._our_errors():
            return self._find(self._prefix + key) is not None

    def stored(self) -> Iterator[StoredObject]:
        """Go through the objects under the prefix that are named as such."""
        with self._our_errors():
            fields = "items(name,size),nextPageToken"
            for blob in self._client.list_blobs(self._bucket, prefix=self._prefix, fields=fields, **self._bounds):
                if is_object_key(key := blob.name.removeprefix(self._prefix)):
                    yield StoredObject(key, blob.size)

    def remove_temporaries(self, claim: str) -> None:
        """There are none: an object is there whole or not at all."""

    def sweep_temporaries(self, older_than_seconds: float) -> int:
        """There are none."""
        return 0

    def _create(self, name: str, data: bytes) -> tuple[bool, Any]:
        """Return whether the object was created, and the object that is there now."""
        from google.cloud.storage.exceptions import InvalidResponse

        blob = self._bucket.blob(name)
        try:
            # What is public would send more than 8 MiB in several requests, of which the first may outlive a dead writer.
            answer = blob._do_multipart_upload(
                client=self._client,
                stream=BytesIO(data),
                content_type="application/octet-stream",
                size=len(data),
                predefined_acl=None,
                if_generation_match=0,
                if_generation_not_match=None,
                if_metageneration_match=None,
                if_metageneration_not_match=None,
                checksum="crc32c",
                **self._bounds,
            )
        except InvalidResponse as error:
            if error.response.status_code != 412:
                raise
            return False, self._find(name)
        blob._set_properties(answer.json())
        return True, blob

    def _find(self, name: str) -> Any:
        blob = self._bucket.get_blob(name, **self._bounds)
        if blob is None:
            self._is_empty()  # raises if it is the bucket that is missing
        return blob

    def _is_empty(self) -> bool:
        names = self._client.list_blobs(self._bucket, prefix=self._prefix, max_results=1, fields="items(name)", **self._bounds)
        return next(iter(names), None) is None

    def _remove(self, name: str) -> None:
        from google.api_core.exceptions import NotFound, PreconditionFailed

        for _ in range(_DELETE_ROUNDS):
            if (blob := self._find(name)) is None:
                return
            try:
                self._bucket.delete_blob(name, if_generation_match=blob.generation, **self._bounds)
                return
            except NotFound:
                return
            except PreconditionFailed:
                continue  # another generation has taken its place since
        raise ScribeError(Category.UNAVAILABLE, f"{name} in {self.url} is written again as often as it is removed: see by whom")

    @contextmanager
    def _our_errors(self, passing: Category = Category.UNAVAILABLE) -> Iterator[None]:
        """Turn the client's errors into ours; `passing` is the category of one that may be over soon."""
        from google.api_core.exceptions import GoogleAPIError
        from google.auth.exceptions import GoogleAuthError
        from google.cloud.storage.exceptions import DataCorruption, InvalidResponse
        from urllib3.exceptions import HTTPError

        try:
            yield
        except GoogleAuthError as error:
            raise self._problem(None if error.retryable else 401, passing) from None
        except (GoogleAPIError, InvalidResponse, DataCorruption, HTTPError, OSError) as error:
            status = getattr(error, "code", None) or getattr(getattr(error, "response", None), "status_code", None)
            raise self._problem(status, passing) from None

    def _problem(self, status: int | None, passing: Category) -> ScribeError:
        if status in (401, 403):
            problem = f"{self.url} is refused to the credentials in use: let them create, read, list and delete objects there"
        elif status == 404:
            problem = f"there is no bucket {self.url}: is SCRIBE_BLOB_URL right?"
        elif status in range(400, 500) and status not in (408, 429):
            problem = f"the bucket {self.url} for scans refuses what is asked of it: see its settings (HTTP {status:d})"
        else:
            return ScribeError(passing, f"the bucket {self.url} for scans cannot be reached just now: try again later")
        return ScribeError(Category.UNAVAILABLE, problem)


def process_client() -> Any:
    """Return this process's client; a forked process has its own, as connections cannot be shared."""
    return _client_of(os.getpid())


def open_client(client: Callable[[], Any]) -> Any:
    """Return what `client` makes. Raises ScribeError (unavailable) if the libraries or the credentials are missing."""
    try:
        from google.auth.exceptions import GoogleAuthError

        return client()
    except ImportError:
        problem = "a bucket for scans needs Google's libraries: pip install 'scribe-pipeline[gcp]'"
        raise ScribeError(Category.UNAVAILABLE, problem) from None
    except GoogleAuthError:
        problem = "there are no credentials for the bucket: set GOOGLE_APPLICATION_CREDENTIALS or log in with gcloud"
        raise ScribeError(Category.UNAVAILABLE, problem) from None


@lru_cache(maxsize=1)
def _client_of(process: int) -> Any:
    from google.cloud import storage

    # objects need no project; None keeps the client from refusing if there is none
    return storage.Client(project=os.environ.get("GOOGLE_CLOUD_PROJECT"))


def _crc32c(data: bytes) -> str:
    import google_crc32c

    return base64.b64encode(google_crc32c.Checksum(data).digest()).decode()
