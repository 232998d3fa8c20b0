"""The send path: one message by SMTP, over a primary server and, if that certainly did not take it, a failover.

Whether a message was taken is known, or it is said that nobody knows. What is said of a server is in our own words: its answer's
code, and never its text, a password or an address.
"""

import io
import ipaddress
import re
import smtplib
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from enum import Enum
from typing import Any, Literal
from urllib.parse import unquote

from scribe_pipeline.errors import Category, ScribeError

_URL = re.compile(
    r"(?P<scheme>smtps?)://"
    r"((?P<user>([^\s:@/?#%]|%[0-9a-f]{2})+):(?P<password>([^\s:@/?#%]|%[0-9a-f]{2})+)@)?"
    r"(\[(?P<address>[0-9a-f:.]+)\]|(?P<host>[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?))(:(?P<port>[0-9]{1,5}))?/?",
    re.ASCII | re.IGNORECASE,
)
_URL_PROBLEM = "a mail server is named smtp://[user:password@]host[:port], or smtps://…, user and password in percent-encoded ASCII"
_PLAIN_PORT, _LOGIN_PORT, _TLS_PORT = 25, 587, 465

_ADDRESS = re.compile(r"""[^\s@<>()\[\],;:"\\]{1,64}@[^\s@<>()\[\],;:"\\]{1,255}""")
_NAMED_ADDRESS = re.compile(r"""\s*("?)(?P<name>[^"<>]*)\1\s*<(?P<address>[^<>]*)>\s*""")
# What may stand in a Message-ID as it is; no longer than that its headers are one line each, as a relay is to read them.
_KEY = re.compile(r"(?=.{1,54}\Z)[a-z0-9_-]+(\.[a-z0-9_-]+)*", re.ASCII | re.IGNORECASE)
_UNSENDABLE = re.compile("[\0\ud800-\udfff]")
# Bodies in ASCII, so that no server needs to know more than that.
_POLICY = SMTP.clone(cte_type="7bit")
_CATEGORY = "alert"
_DEADLINE_PATIENCES = 3

Transport = Literal["primary", "failover"]


@dataclass(frozen=True)
class Mail:
    """One message, before it has a sender. Raises ValueError for a key that cannot stand in a Message-ID.

    `key` is the same whenever the same message is sent again: at most 54 ASCII letters, digits, `_`, `-` and single dots between.
    """

    recipient: str
    subject: str
    text: str
    html: str
    key: str

    def __post_init__(self) -> None:
        if not _KEY.fullmatch(self.key):
            raise ValueError("the key of a message is 1 to 54 ASCII letters, digits, _, - and single dots between them")


class Sent(Enum):
    """What became of a message: a server accepted it, certainly none did, or one may have."""

    DELIVERED = "delivered"
    REFUSED = "refused"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Delivery:
    """What became of a message, by which transport (None if by none), and what went wrong on the way, in one sentence."""

    result: Sent
    transport: Transport | None
    problem: str | None


@dataclass(frozen=True, repr=False)
class _Server:
    host: str
    port: int
    implicit_tls: bool
    user: str | None
    password: str | None

    @property
    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host.lower() == "localhost"


def check_smtp_url(url: str) -> str:
    """Return the URL if it names a mail server. Raises ValueError with a sentence that repeats nothing of it."""
    _server_of(url)
    return url


def check_address(address: str) -> str:
    """Return the text if it is one plain e-mail address, `name@domain`. Raises ValueError that does not repeat it."""
    if not (_ADDRESS.fullmatch(address) and address.isprintable()):
        raise ValueError("that is no e-mail address of the form name@domain")
    return address


class Mailer:
    """Sends messages from one sender (`name@domain` or `Name <name@domain>`) over the servers that two URLs name.

    No operation waits longer than `patience` seconds for a server, and after three times that, counted from the connection's
    begin, none is begun with it for the same message. Raises ValueError for a URL or a sender that is none.
    """

    def __init__(self, primary: str | None, failover: str | None, sender: str, patience: float = 20) -> None:
        urls: dict[Transport, str | None] = {"primary": primary, "failover": failover}
        self._servers = {transport: _server_of(url) for transport, url in urls.items() if url is not None}
        named = _NAMED_ADDRESS.fullmatch(sender)
        self._sender = check_address(named["address"] if named else sender)
        self._sender_name = _one_line(named["name"]) if named else ""
        self._patience = patience

    def check(self) -> None:
        """Log in and leave again, server by server until one answers. Raises ScribeError (unavailable) if none does."""
        problems = []
        for transport, server in self._servers.items():
            try:
                with _session(server, self._patience) as session:
                    session.expect("the question whether it is there", session.noop())
                return
            except (OSError, ValueError, _RefusedError) as error:
                problems.append(f"the {transport} mail server {_said(error)}")
        raise ScribeError(Category.UNAVAILABLE, "; ".join(problems) or "no mail server is configured")

    def send(self, mail: Mail) -> Delivery:
        """Hand a message to the primary server, or to the failover if that certainly did not take it. Raises nothing of its own."""
        problems = []
        try:
            check_address(mail.recipient)
        except ValueError:
            return Delivery(Sent.REFUSED, None, "the recipient is no e-mail address")
        for transport, server in self._servers.items():
            result, said = self._send_by(server, mail)
            if said is not None:
                problems.append(f"the {transport} mail server {said}")
            if result is not Sent.REFUSED:
                return Delivery(result, transport, "; ".join(problems) or None)
        return Delivery(Sent.REFUSED, None, "; ".join(problems) or "no mail server is configured")

    def _send_by(self, server: _Server, mail: Mail) -> tuple[Sent, str | None]:
        international = not (self._sender + mail.recipient).isascii()
        content = self._message(mail).as_bytes(policy=_POLICY.clone(utf8=international))
        try:
            with _session(server, self._patience) as session:
                if international and not session.has_extn("smtputf8"):
                    raise _RefusedError("takes no addresses beyond ASCII")
                session.hand_over(self._sender, mail.recipient, content, ("SMTPUTF8", "BODY=8BITMIME") if international else ())
        except _UncertainError as error:
            return Sent.UNKNOWN, str(error)
        except (OSError, ValueError, _RefusedError) as error:
            return Sent.REFUSED, _said(error)
        return Sent.DELIVERED, None

    def _message(self, mail: Mail) -> EmailMessage:
        message = EmailMessage(_POLICY)
        message["From"] = Address(self._sender_name, *self._sender.split("@"))
        message["To"] = Address("", *mail.recipient.split("@"))
        message["Subject"] = _one_line(mail.subject)
        message["Date"] = datetime.now(UTC)
        message["Message-ID"] = f"<{mail.key}@{self._sender.partition('@')[2]}>"
        message["Resend-Idempotency-Key"] = mail.key
        message["Auto-Submitted"] = "auto-generated"
        message["X-Category"] = _CATEGORY
        message["X-SES-MESSAGE-TAGS"] = f"category={_CATEGORY}"
        message.set_content(_UNSENDABLE.sub("\ufffd", mail.text))
        message.add_alternative(_UNSENDABLE.sub("\ufffd", mail.html), subtype="html")
        return message


class _RefusedError(Exception):
    """What a server did instead of taking the message."""


class _UncertainError(Exception):
    """What a server did when it may have taken the message."""


class _Session(smtplib.SMTP):
    """A session with a server that can neither hang nor drip for ever, and that knows whether a message may have been taken."""

    def __init__(self, server: _Server, patience: float, **options: Any) -> None:
        self._deadline = time.monotonic() + _DEADLINE_PATIENCES * patience
        self._taking = False
        # smtplib would ask the name service for this machine's full name, for as long as that takes
        name = socket.gethostname()
        super().__init__(server.host, server.port, name if "." in name else "[127.0.0.1]", timeout=patience, **options)

    def getreply(self) -> tuple[int, bytes]:
        if self.file is None and self.sock is not None:
            self.file = io.BufferedReader(_Answers(self.sock, self._deadline))
        answer = super().getreply()
        self._taking = answer[0] == 354
        return answer

    def expect(self, what: str, answer: tuple[int, bytes]) -> None:
        """Raise _RefusedError if the answer to something is not that all is well."""
        if answer[0] // 100 != 2:
            raise _RefusedError(f"refused {what} ({answer[0]})")

    def hand_over(self, sender: str, recipient: str, content: bytes, options: tuple[str, ...]) -> None:
        """Send one message. Raises _RefusedError, OSError or ValueError if it is not taken, _UncertainError if nobody knows."""
        self.expect("the sender", self.mail(sender, options))
        self.expect("the recipient", self.rcpt(recipient))
        try:
            answer = self.data(content)
        except smtplib.SMTPDataError as error:
            raise _RefusedError(f"refused to be sent a message ({error.smtp_code})") from None
        except (OSError, ValueError) as error:
            if self._taking:
                raise _UncertainError(f"{_said(error)} after the message was sent, and may have taken it") from None
            raise
        if answer[0] // 100 not in (2, 4, 5):
            raise _UncertainError("gave no answer to the message that can be understood, and may have taken it")
        self.expect("the message", answer)

    def leave(self) -> None:
        """Say goodbye if anybody listens, and close the connection."""
        # what was taken stays so, whatever a server says at the end
        with suppress(OSError, ValueError):
            if self.sock is not None:
                self.quit()
        self.close()


class _TlsSession(_Session, smtplib.SMTP_SSL):
    """The same, in TLS from its first byte."""


class _Answers(io.RawIOBase):
    """The bytes that a server sends, until a deadline: a socket's own limit begins anew with every byte."""

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection, self._deadline = connection, deadline

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if time.monotonic() > self._deadline:
            raise TimeoutError
        return self._connection.recv_into(buffer)


@contextmanager
def _session(server: _Server, patience: float) -> Iterator[_Session]:
    """A session with the server, in TLS if it offers that, and logged in if there is a user."""
    secret = server.implicit_tls
    session = _TlsSession(server, patience, context=ssl.create_default_context()) if secret else _Session(server, patience)
    try:
        session.ehlo_or_helo_if_needed()
        if not secret and session.has_extn("starttls"):
            session.starttls(context=ssl.create_default_context())
            session.ehlo_or_helo_if_needed()
            secret = True
        if server.user is not None and server.password is not None:
            if not secret and not server.is_loopback:
                raise _RefusedError("offers no TLS, and no password is sent without it")
            session.login(server.user, server.password)
        yield session
    finally:
        session.leave()


def _server_of(url: str) -> _Server:
    found = _URL.fullmatch(url)
    if found is None:
        raise ValueError(_URL_PROBLEM)
    implicit_tls = found["scheme"].lower() == "smtps"
    user, password = (None if part is None else unquote(part) for part in (found["user"], found["password"]))
    default_port = _TLS_PORT if implicit_tls else _PLAIN_PORT if user is None else _LOGIN_PORT
    port = int(found["port"] or default_port)
    login = (user or "") + (password or "")
    if not 0 < port < 2**16 or not (login.isascii() and login.isprintable()) or not _is_address(found["address"]):
        raise ValueError(_URL_PROBLEM)
    return _Server(found["address"] or found["host"], port, implicit_tls, user, password)


def _is_address(address: str | None) -> bool:
    try:
        return address is None or ipaddress.IPv6Address(address) is not None
    except ValueError:
        return False


def _one_line(text: str) -> str:
    """The text with one blank for all that would not print, line breaks among it."""
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _said(error: Exception) -> str:
    """What a server did, in our own words. What smtplib tells of a broken connection is only that it is broken."""
    cause = error.__context__ if isinstance(error, smtplib.SMTPServerDisconnected) and error.__context__ else error
    match cause:
        case _RefusedError():
            return str(cause)
        case smtplib.SMTPAuthenticationError():
            return f"refused the login ({cause.smtp_code})"
        case smtplib.SMTPResponseException():
            return f"refused the connection ({cause.smtp_code})"
        case ssl.SSLCertVerificationError():
            return "has a certificate that is not trusted here"
        case ssl.SSLError():
            return "does not speak TLS as it should"
        case TimeoutError():
            return "did not answer in time"
        case smtplib.SMTPServerDisconnected() | ConnectionResetError() | ConnectionAbortedError() | BrokenPipeError():
            return "broke the connection off"
        case smtplib.SMTPException() | ValueError():
            return "offers no login that is understood here"
    return "cannot be reached"
