"""A mail server of one's own, by SMTP as aiosmtpd speaks it, that keeps what it is given, with faults that a test may order.

It lives in a thread of the process that starts it; other processes reach it by its URL, the same whenever it is started again.

    with MailSink() as sink:
        Mailer(sink.url, None, "scribe@example.org").send(...)
        sink.messages[0].message["Subject"]       # what was taken: `message`, `text`, `html`, `sender`, `recipients`
        sink.order(451, at=RCPT, times=2)         # the next two sessions are refused when they name the recipient
        sink.order(550)                           # the next message is refused at its end
        sink.order(LOST)                          # the next is taken, but its answer never comes: the connection is reset
        sink.order(HANGING)                       # ... or stays open without a word until the client leaves
        sink.order(CUT)                           # the connection is closed at the message's end, and nothing taken
        sink.order(DRIP, at=MAIL)                 # the next answer comes byte by byte, twenty a second, as if it had no end
        sink.order(421, times=None); sink.clear() # down; then up again, with nothing kept
        sink.stop(); sink.start()                 # nobody listens; then somebody does again
        sink.sessions, sink.logins                # how many came, and who gave which password
"""

import asyncio
import socket
import ssl
import struct
import threading
from dataclasses import dataclass
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import SMTP as POLICY
from typing import Any
from urllib.parse import quote

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session

LOST, HANGING, CUT, DRIP = "lost", "hanging", "cut", "drip"
CONNECT, NOOP, MAIL, RCPT, DATA, END, QUIT = "CONNECT", "NOOP", "MAIL", "RCPT", "DATA", "END", "QUIT"
_DRIP_SECONDS, _DRIPS = 0.05, 200


@dataclass(frozen=True)
class Taken:
    """A message with its envelope."""

    sender: str
    recipients: list[str]
    message: EmailMessage

    @property
    def text(self) -> str:
        """What a reader of plain text sees."""
        return self._part("plain")

    @property
    def html(self) -> str:
        """What a reader of HTML sees."""
        return self._part("html")

    def _part(self, kind: str) -> str:
        part = self.message.get_body((kind,))
        assert part is not None
        return part.get_content().replace("\r\n", "\n")


@dataclass
class Order:
    kind: int | str
    at: str
    times: int | None


class MailSink:
    """One server on 127.0.0.1. Start it as a context manager.

    With a `login` it wants user and password; with a `context` it offers STARTTLS, or is in TLS from the first byte (`implicit`).
    """

    def __init__(
        self,
        login: tuple[str, str] | None = None,
        context: ssl.SSLContext | None = None,
        *,
        implicit: bool = False,
        utf8: bool = True,
    ) -> None:
        self.login = login
        self.logins: list[tuple[str, str]] = []
        self.sessions = 0
        self.port = 0
        self._tls = {"implicit": context} if implicit else {"starttls": context}
        self._utf8 = utf8
        self._thread: threading.Thread | None = None
        self._taken: list[Taken] = []
        self._orders: list[Order] = []
        self._lock = threading.Lock()

    def __enter__(self) -> "MailSink":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen, at the port of the time before if there was one. Nothing if it listens."""
        if self._thread is not None:
            return
        ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(ready,), daemon=True)
        self._thread.start()
        assert ready.wait(30)

    def stop(self) -> None:
        """Close every connection and listen no more; what was taken and what is ordered stays. Nothing if it is stopped."""
        if self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._thread = None

    @property
    def url(self) -> str:
        """The server's URL, with its user and password if it has them."""
        scheme = "smtps" if "implicit" in self._tls else "smtp"
        login = ":".join(quote(part, safe="") for part in self.login) + "@" if self.login else ""
        return f"{scheme}://{login}127.0.0.1:{self.port}"

    @property
    def messages(self) -> list[Taken]:
        """What was taken so far, oldest first."""
        with self._lock:
            return list(self._taken)

    @property
    def orders(self) -> list[Order]:
        """The orders that are not worked off."""
        with self._lock:
            return [order for order in self._orders if order.times != 0]

    def order(self, kind: int | str, at: str = END, times: int | None = 1) -> None:
        """Let what comes next to one point of a session end so; with no number, all until `clear`. Orders are taken in turn."""
        with self._lock:
            self._orders.append(Order(kind, at, times))

    def clear(self) -> None:
        """Forget what was taken, what was ordered and who was there."""
        with self._lock:
            self._taken.clear()
            self._orders.clear()
            self.logins.clear()
            self.sessions = 0

    def fault(self, at: str) -> int | str | None:
        """Take the next order for this point."""
        with self._lock:
            for order in self._orders:
                if order.at == at and order.times != 0:
                    order.times = order.times and order.times - 1
                    return order.kind
        return None

    def keep(self, envelope: Envelope) -> None:
        """Take a message."""
        assert isinstance(envelope.content, bytes) and envelope.mail_from
        message = message_from_bytes(envelope.content, policy=POLICY.clone(utf8=bool(envelope.smtp_utf8)))
        assert isinstance(message, EmailMessage)
        with self._lock:
            self._taken.append(Taken(envelope.mail_from, list(envelope.rcpt_tos), message))

    def count(self) -> None:
        """Note that somebody has come."""
        with self._lock:
            self.sessions += 1

    def _serve(self, ready: threading.Event) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        implicit = self._tls.get("implicit")
        server = loop.run_until_complete(loop.create_server(self._session, "127.0.0.1", self.port, ssl=implicit))
        self.port = server.sockets[0].getsockname()[1]
        ready.set()
        loop.run_forever()
        server.close()
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        # the connections of what was cancelled are closed a turn later
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()

    def _session(self) -> "_Session":
        return _Session(
            self,
            hostname="sink.example",
            loop=self._loop,
            enable_SMTPUTF8=self._utf8,
            tls_context=self._tls.get("starttls"),
            auth_require_tls=False,
            auth_exclude_mechanism=[] if self.login else ["LOGIN", "PLAIN"],
            authenticator=self._authenticate,
        )

    def _authenticate(self, _server: SMTP, _session: Session, _envelope: Envelope, _mechanism: str, data: Any) -> AuthResult:
        assert isinstance(data, LoginPassword)
        given = (data.login.decode(), data.password.decode())
        with self._lock:
            self.logins.append(given)
        return AuthResult(success=given == self.login, handled=False)


class _Ends:
    """What aiosmtpd asks at the end of a message."""

    async def handle_DATA(self, server: SMTP, _session: Session, envelope: Envelope) -> str:
        assert isinstance(server, _Session)
        fault = server.sink.fault(END)
        if fault in (None, LOST, HANGING, DRIP):
            server.sink.keep(envelope)
        return "250 2.0.0 Taken" if fault is None else await server.spoil(fault)


class _Session(SMTP):
    def __init__(self, sink: MailSink, **options: Any) -> None:
        super().__init__(_Ends(), **options)
        self.sink = sink

    async def _handle_client(self) -> None:
        self.sink.count()
        if await self._spoiled(CONNECT):
            await self._hang_up()
        await super()._handle_client()

    async def smtp_NOOP(self, arg: str) -> None:
        if not await self._spoiled(NOOP):
            await super().smtp_NOOP(arg)

    async def smtp_MAIL(self, arg: str) -> None:
        assert self.session is not None
        if self.sink.login and not self.session.authenticated:
            await self.push("530 5.7.0 Authentication required")
        elif not await self._spoiled(MAIL):
            await super().smtp_MAIL(arg)

    async def smtp_RCPT(self, arg: str) -> None:
        if not await self._spoiled(RCPT):
            await super().smtp_RCPT(arg)

    async def smtp_DATA(self, arg: str) -> None:
        if not await self._spoiled(DATA):
            await super().smtp_DATA(arg)

    async def smtp_QUIT(self, arg: str) -> None:
        if not await self._spoiled(QUIT):
            await super().smtp_QUIT(arg)

    async def _spoiled(self, at: str) -> bool:
        """Do what is ordered for this point; False if there is nothing."""
        fault = self.sink.fault(at)
        if fault is not None:
            await self.push(await self.spoil(fault))
        return fault is not None

    async def spoil(self, fault: int | str) -> str:
        """Do what is ordered, and return the answer if there is to be one. Otherwise this ends with the connection."""
        if isinstance(fault, int):
            answer = f"{fault} 4.3.0 as ordered by postmaster@sink.example"
            if fault != 421:
                return answer
            await self.push(answer)
        if fault == DRIP:
            self._writer.write(b"250-")
            for _ in range(_DRIPS):
                self._writer.write(b".")
                await self._writer.drain()
                await asyncio.sleep(_DRIP_SECONDS)
            return "\r\n250 at last"
        if fault != HANGING:
            await self._hang_up(abruptly=fault == LOST)
        return await self._never()

    async def _hang_up(self, *, abruptly: bool = False) -> None:
        assert self.transport is not None
        if abruptly:
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.close()
        await self._never()

    async def _never(self) -> str:
        # aiosmtpd cancels what serves a connection when that is lost
        await asyncio.Event().wait()
        raise AssertionError
