"""HTTP to providers: bounded in request, answer and time, without redirects; failures become categories here and nowhere else.

An error tells a category and one sentence of our own. What a provider answers, its address and its key are no part of it.
"""

import math
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import httpcore2
import httpx2

from scribe_pipeline.errors import Category, ScribeError

Answer = TypeVar("Answer")

_BY_STATUS = {
    400: Category.INVALID_REQUEST,
    401: Category.AUTHENTICATION,
    403: Category.AUTHENTICATION,
    408: Category.TIMEOUT,
    429: Category.RATE_LIMITED,
    504: Category.TIMEOUT,
}
# Google calls a wrong key a bad request, and says so further inside.
_WRONG_KEY = re.compile(rb'"reason"\s*:\s*"API_KEY_INVALID"')
_SAID = {
    Category.INVALID_REQUEST: "refused the request",
    Category.AUTHENTICATION: "refused the key",
    Category.TIMEOUT: "did not answer in time",
    Category.TRANSPORT: "could not be reached, or broke off",
    Category.RATE_LIMITED: "has had too many requests",
    Category.UPSTREAM: "failed",
    Category.RESPONSE_TOO_LARGE: "answered with more than is taken",
    Category.INVALID_RESPONSE: "gave an answer that cannot be read",
}


class Refusal(Exception):
    """What a provider did instead of giving an answer; `translated` makes a ScribeError of it."""

    def __init__(self, category: Category) -> None:
        super().__init__(category.value)
        self.category = category


class _Until(threading.local):
    """The moment by which the call of this thread has to be over."""

    moment = math.inf

    def seconds(self, most: float | None) -> float:
        """How long its next step may take. Raises httpcore2.ReadTimeout if there is no time left."""
        left = self.moment - time.monotonic()
        if left <= 0:
            raise httpcore2.ReadTimeout("the call takes too long")
        return left if most is None else min(most, left)


class _PunctualStream(httpcore2.NetworkStream):
    """A connection whose every step ends with the call's time. Libraries know only limits for each step."""

    def __init__(self, inner: httpcore2.NetworkStream, until: _Until) -> None:
        self._inner, self._until = inner, until

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._until.seconds(timeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._until.seconds(timeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _PunctualStream(self._inner.start_tls(ssl_context, server_hostname, self._until.seconds(timeout)), self._until)

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)


class _PunctualBackend(httpcore2.SyncBackend):
    def __init__(self, until: _Until) -> None:
        self._until = until

    def connect_tcp(
        self, host: str, port: int, timeout: float | None = None, *rest: Any, **options: Any
    ) -> httpcore2.NetworkStream:
        stream = super().connect_tcp(host, port, self._until.seconds(timeout), *rest, **options)
        return _PunctualStream(stream, self._until)


class _BoundedStream(httpx2.SyncByteStream):
    """An answer's bytes, up to a number."""

    def __init__(self, stream: httpx2.SyncByteStream, most: int) -> None:
        self._stream, self._most = stream, most

    def __iter__(self) -> Iterator[bytes]:
        size = 0
        for chunk in self._stream:
            size += len(chunk)
            if size > self._most:
                raise Refusal(Category.RESPONSE_TOO_LARGE)
            yield chunk

    def close(self) -> None:
        self._stream.close()


class _BoundedTransport(httpx2.BaseTransport):
    """Sends requests up to a size and takes answers up to a size, `seconds` for each call. No success is a Refusal."""

    def __init__(self, seconds: float, max_request_bytes: int, max_response_bytes: int) -> None:
        # a connection for each call: what somebody sends after an answer is not taken for the next line's
        self._inner = httpx2.HTTPTransport(retries=0, limits=httpx2.Limits(max_keepalive_connections=0))
        self._until = _Until()
        # there is no public way to it; without it an answer may come byte by byte for ever
        self._inner._pool._network_backend = _PunctualBackend(self._until)
        self._seconds, self._most_sent, self._most_taken = seconds, max_request_bytes, max_response_bytes

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        if len(request.read()) > self._most_sent:
            raise Refusal(Category.INVALID_REQUEST)
        self._until.moment = time.monotonic() + self._seconds
        # whatever a vendor's client asks for
        request.extensions["timeout"] = httpx2.Timeout(self._seconds).as_dict()
        # a small answer may be packed that is none when it is unpacked
        request.headers["Accept-Encoding"] = "identity"
        request.headers["Connection"] = "close"
        response = self._inner.handle_request(request)
        assert isinstance(response.stream, httpx2.SyncByteStream)
        response.stream = _BoundedStream(response.stream, self._most_taken)
        if response.is_success and response.headers.get("Content-Encoding", "identity") == "identity":
            return response
        try:
            raise Refusal(Category.INVALID_RESPONSE if response.is_success else category_of(response.status_code, _raw(response)))
        finally:
            response.close()

    def close(self) -> None:
        self._inner.close()


def bounded_client(seconds: float, max_request_bytes: int, max_response_bytes: int) -> httpx2.Client:
    """Return an HTTP client that several threads may use. It follows no redirects and takes no proxy from the environment."""
    transport = _BoundedTransport(seconds, max_request_bytes, max_response_bytes)
    return httpx2.Client(transport=transport, timeout=seconds, follow_redirects=False, trust_env=False)


def category_of(status: int, body: bytes = b"") -> Category:
    """Return the category of an answer that is no success."""
    if status == 400 and _WRONG_KEY.search(body):
        return Category.AUTHENTICATION
    return _BY_STATUS.get(status, Category.UPSTREAM if status >= 500 else Category.INVALID_REQUEST)


def _raw(response: httpx2.Response) -> bytes:
    """The body as far as it can be had: the status tells enough without it."""
    body = bytearray()
    with suppress(Refusal, httpx2.TransportError):
        for chunk in response.iter_raw():
            body += chunk
    return bytes(body)


def translated(provider: str, call: Callable[[], Answer]) -> Answer:
    """Return what a call gives. A Refusal, and what an HTTP client raises, becomes a ScribeError that says what `provider` did.

    Nothing is chained to it, as a context manager would: causes tell of addresses and keys.
    """
    try:
        return call()
    except Refusal as error:
        category = error.category
    except httpx2.TimeoutException:
        category = Category.TIMEOUT
    except httpx2.TransportError:
        category = Category.TRANSPORT
    except (ValueError, RecursionError):  # no JSON, no UTF-8, numbers too long
        category = Category.INVALID_RESPONSE
    raise ScribeError(category, f"{provider} {_SAID[category]}")
