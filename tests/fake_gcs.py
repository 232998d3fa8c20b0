"""A Google Cloud Storage of one's own: its JSON interface as the client library uses it, with faults that a test may order.

It lives in threads of the process that starts it; other processes reach it with the variables of `environment`. Unlike the
emulators it holds to the preconditions on generations in every request. It knows no resumable uploads: whoever begins one fails.

    with FakeGcs() as gcs:
        store = GcsBlobStore(gcs.client(), gcs.bucket)
        gcs.order(503, times=2)                   # the next two requests are answered so
        gcs.order(LOST, method="POST")            # the next upload is done, but its answer never comes: the connection is closed
        gcs.order(HANGING, method="POST")         # ... or stays open without a word until the server stops
        gcs.order(HALF, method="GET")             # the next answer ends in the middle of its body
        gcs.order(503, times=None); gcs.mend()    # down, and up again
        gcs.before = lambda method, name: ...     # called before each request for an object, outside of the lock
        gcs.objects["name"]                       # what is stored: `data` and `generation`
        gcs.asked                                 # (method, path, query) of every request for objects
"""

import base64
import json
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

LOST, HANGING, HALF = "lost", "hanging", "half"
_BUCKET = re.compile(r"(?:/upload|/download)?/storage/v1/b/([^/]+)(/o(?:/(.+))?)?")


@dataclass
class Stored:
    data: bytes
    generation: int

    @property
    def crc32c(self) -> str:
        import google_crc32c

        return base64.b64encode(google_crc32c.Checksum(self.data).digest()).decode()


@dataclass
class Fault:
    kind: int | str
    times: int | None
    method: str | None


@dataclass
class Answer:
    status: int
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)


def client_of(url: str) -> Any:
    """A client of the server there, which asks for no credentials."""
    from google.auth.credentials import AnonymousCredentials
    from google.cloud import storage

    return storage.Client("test", credentials=AnonymousCredentials(), client_options={"api_endpoint": url})


class FakeGcs:
    """One bucket. Start it as a context manager."""

    def __init__(self, bucket: str = "scans", page_size: int = 1000) -> None:
        self.bucket = bucket
        self.page_size = page_size
        self.objects: dict[str, Stored] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self.before: Callable[[str, str], None] = lambda method, name: None
        self._faults: list[Fault] = []
        self._generation = 1000
        self._lock = threading.Lock()
        self.stopped = threading.Event()

    def __enter__(self) -> "FakeGcs":
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"gcs": self}))
        self._server.daemon_threads = True
        # so short that stopping takes no time
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.socket.close()

    @property
    def environment(self) -> dict[str, str]:
        """The variables by which the client library finds this server."""
        return {
            "STORAGE_EMULATOR_HOST": f"http://127.0.0.1:{self._server.server_address[1]}",
            "GOOGLE_CLOUD_PROJECT": "test",
        }

    def client(self) -> Any:
        """A client of this server, whatever the environment says."""
        return client_of(self.environment["STORAGE_EMULATOR_HOST"])

    def order(self, kind: int | str, times: int | None = 1, method: str | None = None) -> None:
        """Let the next requests (of one method, if it is named) end so; with no number, all until `mend`."""
        self._faults.append(Fault(kind, times, method))

    def mend(self) -> None:
        """Let all go well again."""
        self._faults.clear()

    def put(self, name: str, data: bytes) -> None:
        """Store an object as somebody else might, in a new generation."""
        with self._lock:
            self._generation += 1
            self.objects[name] = Stored(data, self._generation)

    def queries(self, method: str) -> list[dict[str, str]]:
        """What the requests of one method had in their queries."""
        return [query for asked, _, query in self.asked if asked == method]

    def fault(self, method: str) -> int | str | None:
        """Take the next fault that is ordered for such a request."""
        with self._lock:
            for fault in self._faults:
                if fault.method in (None, method) and fault.times != 0:
                    fault.times = fault.times and fault.times - 1
                    return fault.kind
        return None

    def answer(self, method: str, target: str, headers: Message, body: bytes) -> Answer:
        """Do what is asked."""
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        found = _BUCKET.fullmatch(parts.path)
        if found is None:
            return _error(404, "Not Found")
        if found[2]:
            self.asked.append((method, parts.path, query))
        if found[1] != self.bucket:
            return _error(404, "The specified bucket does not exist.")
        if not found[2]:
            return _json({"name": self.bucket})
        name = unquote(found[3] or "")
        if parts.path.startswith("/upload"):
            if query.get("uploadType") != "multipart":
                return _error(501, "only uploads of one request are known here")
            described, data = _parts(headers, body)
            name = described["name"]
            self.before(method, name)
            with self._lock:
                return self._create(name, data, described, query)
        if name:
            self.before(method, name)
        with self._lock:
            return self._one(method, name, query, headers) if name else self._list(query)

    def _create(self, name: str, data: bytes, described: dict[str, str], query: dict[str, str]) -> Answer:
        there = self.objects.get(name)
        if not _meets(query, there):
            return _error(412, "At least one of the pre-conditions you specified did not hold.")
        self._generation += 1
        stored = Stored(data, self._generation)
        if described.get("crc32c", stored.crc32c) != stored.crc32c:
            return _error(400, "Provided CRC32C does not match.")
        self.objects[name] = stored
        return _json(self._described(name))

    def _one(self, method: str, name: str, query: dict[str, str], headers: Message) -> Answer:
        there = self.objects.get(name)
        if there is None or query.get("generation", str(there.generation)) != str(there.generation):
            return _error(404, f"No such object: {self.bucket}/{name}")
        if not _meets(query, there):
            return _error(412, "At least one of the pre-conditions you specified did not hold.")
        if method == "DELETE":
            del self.objects[name]
            return Answer(204)
        if query.get("alt") != "media":
            return _json(self._described(name))
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", headers.get("Range", ""))
        start, end = (int(asked[1]), int(asked[2] or len(there.data) - 1) + 1) if asked else (0, len(there.data))
        described = {"X-Goog-Hash": f"crc32c={there.crc32c}", "X-Goog-Generation": str(there.generation)}
        return Answer(206 if asked else 200, there.data[start:end], described)

    def _list(self, query: dict[str, str]) -> Answer:
        names = sorted(name for name in self.objects if name.startswith(query.get("prefix", "")))
        start = int(query.get("pageToken", 0))
        end = start + min(self.page_size, int(query.get("maxResults", self.page_size)))
        page: dict[str, Any] = {"items": [self._described(name) for name in names[start:end]]}
        return _json(page | ({"nextPageToken": str(end)} if end < len(names) else {}))

    def _described(self, name: str) -> dict[str, str]:
        stored = self.objects[name]
        facts = {"name": name, "bucket": self.bucket, "generation": str(stored.generation), "metageneration": "1"}
        return facts | {"size": str(len(stored.data)), "crc32c": stored.crc32c}


class _Handler(BaseHTTPRequestHandler):
    gcs: FakeGcs
    protocol_version = "HTTP/1.1"
    # one packet an answer: with two, the second waits for the reader's acknowledgement of the first
    wbufsize = -1

    def _serve(self) -> None:
        size = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(size)
        if len(body) < size:
            self._hang_up()  # whoever was sending is dead
            return
        # The client asks for the bucket itself in a thread of its own, at a time of its own: that takes no fault and is not noted.
        fault = self.gcs.fault(self.command) if "/o" in urlsplit(self.path).path else None
        if isinstance(fault, int):
            self.gcs.asked.append((self.command, urlsplit(self.path).path, {}))
            answer = _error(fault, "as ordered")
        else:
            answer = self.gcs.answer(self.command, self.path, self.headers, body)
        if fault == HANGING:
            self.gcs.stopped.wait()
        if fault in (LOST, HANGING):
            self._hang_up()
            return
        self.send_response(answer.status)
        for name, value in answer.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body[: len(answer.body) // 2] if fault == HALF else answer.body)
        self.wfile.flush()
        if fault == HALF:
            self._hang_up()

    def _hang_up(self) -> None:
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_POST = do_DELETE = _serve

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def _meets(query: dict[str, str], there: Stored | None) -> bool:
    generation = str(there.generation) if there else "0"
    return (
        query.get("ifGenerationMatch", generation) == generation
        and query.get("ifGenerationNotMatch") != generation
        and query.get("ifMetagenerationMatch", "1") == "1"
        and query.get("ifMetagenerationNotMatch") != "1"
    )


def _parts(headers: Message, body: bytes) -> tuple[dict[str, str], bytes]:
    """What an upload in one request says of the object, and its bytes."""
    boundary = b"--" + str(headers.get_param("boundary")).encode()
    described, data = (part.split(b"\r\n\r\n", 1)[1] for part in body.split(boundary)[1:3])
    return json.loads(described), data.removesuffix(b"\r\n")


def _json(content: dict[str, Any]) -> Answer:
    return Answer(200, json.dumps(content).encode(), {"Content-Type": "application/json"})


def _error(status: int, message: str) -> Answer:
    error = _json({"error": {"code": status, "message": message}})
    return Answer(status, error.body, error.headers)
