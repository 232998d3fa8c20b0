"""Providers of one's own: HTTP servers that speak as Gemini, OpenAI, vLLM and Ollama do, with faults that a test may order.

They live in threads of the process that starts them; other processes reach them by their endpoint. What is not asked as the vendor
documents it is answered with 400 (a path, with 404), and the reason kept.

    with Provider("gemini") as double:
        double.says = lambda asked: "the text"    # what it reads on a crop
        double.order(503, times=2)                # the next two readings are answered so; with no number, all until `mend`
        double.order(200)                         # ... and one after them goes well
        double.order(Fault.CUT)                   # ... or so
        double.before = lambda number: ...        # called with 1, 2, 3 ... before each reading is answered, outside of the lock
        double.found = b"[]"                      # what a probe is answered with, instead of what is documented
        double.answer = {...}                     # what each reading is answered with, instead of a good answer with its text
        double.asked                              # every reading that was asked for: crop, prompt, temperature, key ...
        double.refused                            # why requests were not taken
        double.model(id="...")                    # an entry of the registry that leads here
"""

import gzip
import json
import math
import socket
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from enum import StrEnum, auto
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np

from scribe_pipeline.engines.images import Pixels
from tests.provider_dialects import DIALECTS, NotDocumented, Question


class Fault(StrEnum):
    """What may become of an answer."""

    # something goes wrong with the connection
    RESET = auto()
    HANGING = auto()
    DRIP = auto()
    DRIPPING_HEADERS = auto()
    HALF = auto()
    LOST = auto()
    # the answer comes whole, and is not what it should be
    NOT_JSON = auto()
    NO_OBJECT = auto()
    DEEP = auto()
    WRONG = auto()
    HOLLOW = auto()
    MISTYPED = auto()
    HUGE = auto()
    PACKED = auto()
    REDIRECT = auto()
    # the answer is as documented
    BLANK = auto()
    WHITE = auto()
    REFUSED = auto()
    CUT = auto()
    FENCED = auto()
    PREFIXED = auto()
    # ... and a second one that nobody has asked for comes with it
    DOUBLED = auto()


_WRAPPED = {
    Fault.BLANK: "",
    Fault.WHITE: " \n\t",
    Fault.FENCED: "```text\n{}\n```",
    Fault.PREFIXED: 'Here is the transcription: "{}"',
}
_HUGE_BYTES = 4 * 1024**2
_DRIP_SECONDS = 0.02
_MEETING_SECONDS = 30
KEY = "test-key-0123456789-abcdefghijklmnop"


def registry_file(folder: Path, *entries: dict[str, Any]) -> Path:
    """A file of models with these entries, for SCRIBE_MODELS_FILE."""
    path = folder / "models.toml"
    # numbers and plain strings are the same in both
    path.write_text(
        "".join("[[model]]\n" + "".join(f"{name} = {json.dumps(entry[name])}\n" for name in entry) for entry in entries)
    )
    return path


@dataclass(frozen=True)
class Asked:
    """A reading that was asked for; `number` counts from 1, `at_once` says how many were under way with it."""

    number: int
    at_once: int
    crop: Pixels
    question: Question
    key: str | None


class Rounds:
    """Readings that wait for each other: the first `alone` or not, then so many together, until all lines are read.

    To be called with 1, 2, 3 ... by each reading on its way. Raises AssertionError if those it waits for do not come.
    """

    def __init__(self, lines: int, at_once: int, *, alone: bool = True) -> None:
        self._lines, self._at_once, self._alone = lines, at_once, int(alone)
        self._come = 0
        self._met = threading.Condition()

    def __call__(self, number: int) -> None:
        """Return when the reading's round is complete."""
        last = min(self._lines, self._alone + math.ceil((number - self._alone) / self._at_once) * self._at_once)
        with self._met:
            self._come = max(self._come, number)
            self._met.notify_all()
            assert self._met.wait_for(lambda: self._come >= last, _MEETING_SECONDS), f"{number} of {last} waits in vain"


@dataclass
class Order:
    kind: int | Fault
    times: int | None
    headers: dict[str, str]


class Provider:
    """One server. Start it as a context manager; `kind` is the engine's name in the registry."""

    def __init__(self, kind: str, key: str | None = KEY, name: str = "reader-1") -> None:
        self.kind = kind
        self.dialect = DIALECTS[kind]
        self.key = key
        self.name = name
        self.stopped = threading.Event()
        self._under_way = 0
        self._lock = threading.Lock()
        self.clear()

    def __enter__(self) -> "Provider":
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"provider": self}))
        # so short that stopping takes no time
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.socket.close()

    @property
    def endpoint(self) -> str:
        """Where a registry's entry has to point."""
        return f"http://127.0.0.1:{self._server.server_address[1]}{self.dialect.base}"

    def model(self, **values: Any) -> dict[str, Any]:
        """An entry of the registry for the model that is here."""
        entry = {"id": self.name, "kind": "transcriber", "engine": self.kind, "endpoint": self.endpoint}
        return entry | ({} if self.key is None else {"key_variable": "TEST_PROVIDER_KEY"}) | values

    def order(self, kind: int | Fault, times: int | None = 1, **headers: str) -> None:
        """Let the next readings end so; with no number, all until `mend`. Headers go with a status."""
        with self._lock:
            self._orders.append(Order(kind, times, headers))

    def mend(self) -> None:
        """Let all go well again."""
        with self._lock:
            self._orders.clear()

    def clear(self) -> None:
        """Forget what was asked, said and ordered."""
        self.says: Callable[[Asked], str] = lambda asked: f"line {asked.number}"
        self.before: Callable[[int], None] = lambda number: None
        self.found: bytes | None = None
        self.answer: dict[str, Any] | None = None
        self.asked: list[Asked] = []
        self.requests: list[str] = []
        self.heads: list[str] = []
        self.refused: list[str] = []
        self._orders: list[Order] = []

    def begin(self, question: Question, key: str | None) -> tuple[Asked, Order | None]:
        """Keep what is asked, and take the next order."""
        crop = np.asarray(question.picture)
        with self._lock:
            self._under_way += 1
            asked = Asked(len(self.asked) + 1, self._under_way, crop, question, key)
            self.asked.append(asked)
            order = next((order for order in self._orders if order.times != 0), None)
            if order is not None and order.times is not None:
                order.times -= 1
        return asked, order

    def end(self) -> None:
        """Count a reading as over."""
        with self._lock:
            self._under_way -= 1


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def shutdown_request(self, request: Any) -> None:
        # no good-bye before a connection is reset
        self.close_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        # who asked may have left
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    provider: Provider
    protocol_version = "HTTP/1.1"
    headers: Message

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self._serve(None)

    def do_POST(self) -> None:
        self._serve(self.rfile.read(int(self.headers["Content-Length"])))

    def _serve(self, body: bytes | None) -> None:
        provider = self.provider
        dialect = provider.dialect
        provider.requests.append(f"{self.command} {self.path}")
        provider.heads.append(str(self.headers))
        key = dialect.key_of(self.headers)
        if key != provider.key:
            provider.refused.append("wrong key")
            self._answer(*dialect.wrong_key(key))
            return
        try:
            if body is not None and self.headers["Content-Type"] != "application/json":
                raise NotDocumented("the body is no application/json")
            document = None if body is None else json.loads(body)
            question = dialect.read(self.command, unquote(self.path), document, provider.name)
        except (NotDocumented, KeyError, TypeError, ValueError) as error:
            status = error.status if isinstance(error, NotDocumented) else 400
            provider.refused.append(str(error))
            self._answer(status, dialect.error(status, str(error)))
            return
        if isinstance(question, Question):
            self._read(question, key)
        elif provider.found is not None:
            self._send(provider.found)
        else:
            self._answer(200, question)

    def _read(self, question: Question, key: str | None) -> None:
        provider, dialect = self.provider, self.provider.dialect
        asked, order = provider.begin(question, key)
        text = provider.says(asked)
        try:
            provider.before(asked.number)
        finally:
            # before the answer: who has it may ask again at once
            provider.end()
        match None if order is None else order.kind:
            case None | 200:
                self._answer(200, dialect.good(text) if provider.answer is None else provider.answer)
            case int(status):
                assert order is not None
                # as a careless vendor would: with the key, the address and the prompt in it
                said = f"{key} at {provider.endpoint} was asked {question.prompt!r}"
                self._answer(status, dialect.error(status, said), **order.headers)
            case Fault.BLANK | Fault.WHITE | Fault.FENCED | Fault.PREFIXED as kind:
                self._answer(200, dialect.good(_WRAPPED[kind].format(text)))
            case Fault.REFUSED:
                self._answer(200, dialect.refused())
            case Fault.CUT:
                self._answer(200, dialect.cut(text))
            case Fault.WRONG:
                self._answer(200, {"unexpected": text})
            case Fault.HOLLOW:
                self._answer(200, dialect.hollow())
            case Fault.MISTYPED:
                self._answer(200, dialect.good(text, mistyped=True))
            case Fault.NO_OBJECT:
                self._answer(200, [dialect.good(text)])
            case Fault.REDIRECT:
                self._answer(307, {}, Location=f"{provider.endpoint}/elsewhere?key={key}")
            case Fault.NOT_JSON:
                self._send(b"<html>a proxy's page</html>")
            case Fault.DEEP:
                self._send(b"[" * 200_000)
            case Fault.HUGE:
                self._send(b" " * _HUGE_BYTES + json.dumps(dialect.good(text)).encode())
            case Fault.DOUBLED:
                answer, second = (json.dumps(dialect.good(said)).encode() for said in (text, "not asked for"))
                self.wfile.write(_head(answer) + answer + _head(second) + second)
            case Fault.PACKED:
                self._send(gzip.compress(json.dumps(dialect.good(text)).encode()), **{"Content-Encoding": "gzip"})
            case kind:
                self._spoil(kind, json.dumps(dialect.good(text)).encode())

    def _spoil(self, kind: int | Fault, body: bytes) -> None:
        """Do to the connection what is ordered, and close it."""
        self.close_connection = True
        head = _head(body)
        if kind == Fault.HANGING:
            self.provider.stopped.wait()
        elif kind == Fault.DRIP:
            self._drip(head, b" " * _HUGE_BYTES)
        elif kind == Fault.DRIPPING_HEADERS:
            self._drip(b"HTTP/1.1 200 OK\r\nX-Padding: ", b"x" * _HUGE_BYTES)
        elif kind == Fault.HALF:
            self.wfile.write(head + body[: len(body) // 2])
        else:
            if kind == Fault.LOST:
                self.wfile.write(head + body[: len(body) // 2])
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _drip(self, start: bytes, rest: bytes) -> None:
        self.wfile.write(start)
        for place in range(len(rest)):
            self.wfile.write(rest[place : place + 1])
            if self.provider.stopped.wait(_DRIP_SECONDS):
                break

    def _answer(self, status: int, document: Any, **headers: str) -> None:
        self._send(json.dumps(document).encode(), status, **headers)

    def _send(self, body: bytes, status: int = 200, **headers: str) -> None:
        self.send_response(status)
        for name, value in ({"Content-Type": "application/json", "Content-Length": str(len(body))} | headers).items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)


def _head(body: bytes) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
