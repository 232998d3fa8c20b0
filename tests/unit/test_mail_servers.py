"""How a mail server is named, logged in at and trusted, and where a password never goes."""

import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from scribe_pipeline.errors import ScribeError
from scribe_pipeline.outcomes.mail import Delivery, Mail, Mailer, Sent, check_smtp_url
from tests.mail_sink import MailSink

SENDER = "Scribe <scribe@example.org>"
NOTICE = Mail("admin@example.org", "A page failed", "It says so.\n", "<p>It says so.</p>", "notice-1")
LOGIN = ("scribe@example.org", "pass/word: 100%")


@pytest.fixture(scope="module")
def primary() -> Iterator[MailSink]:
    with MailSink() as sink:
        yield sink


def test_a_server_may_want_a_login() -> None:
    """R210: given as it is meant, whatever characters are in it; no login and a wrong one are refused, and not repeated."""
    with MailSink(LOGIN) as sink:
        assert Mailer(sink.url, None, SENDER).send(NOTICE) == Delivery(Sent.DELIVERED, "primary", None)
        assert sink.logins == [LOGIN]
        sink.login = ("scribe@example.org", "another")
        mailer = Mailer(f"smtp://scribe%40example.org:hunter2@127.0.0.1:{sink.port}", None, SENDER)
        delivery = mailer.send(NOTICE)
        assert delivery == Delivery(Sent.REFUSED, None, "the primary mail server refused the login (535)")
        with pytest.raises(ScribeError) as refused:
            mailer.check()
        assert refused.value.message == delivery.problem
        assert "hunter2" not in repr((mailer, vars(mailer), refused.value))
        delivery = Mailer(f"smtp://127.0.0.1:{sink.port}", None, SENDER).send(NOTICE)
        assert delivery.problem == "the primary mail server refused the sender (530)"


def test_a_server_that_knows_no_login_gets_none(primary: MailSink) -> None:
    """R210: a login that is configured is not left out silently."""
    mailer = Mailer(f"smtp://user:hunter2@127.0.0.1:{primary.port}", None, SENDER)
    assert mailer.send(NOTICE) == Delivery(Sent.REFUSED, None, "the primary mail server offers no login that is understood here")


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a host that is this machine, and does not look it."""
    found = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *args: found("127.0.0.1" if host == "mail.example" else host, *args))
    return "mail.example"


def test_no_password_goes_over_the_net_without_tls(elsewhere: str) -> None:
    """R210: even if the server asks for it; without a password the message may go."""
    with MailSink(LOGIN) as sink:
        mailer = Mailer(f"smtp://user:hunter2@{elsewhere}:{sink.port}", None, SENDER)
        problem = "the primary mail server offers no TLS, and no password is sent without it"
        assert mailer.send(NOTICE) == Delivery(Sent.REFUSED, None, problem)
        assert sink.sessions == 1 and sink.logins == []
        sink.login = None
        assert Mailer(f"smtp://{elsewhere}:{sink.port}", None, SENDER).send(NOTICE).result is Sent.DELIVERED


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for mail.example, signed by itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "mail.example")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("mail.example")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.KeyUsage(True, False, False, False, False, True, False, False, False), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path_factory.mktemp("certificate") / "server.pem"
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    path.write_bytes(secret + built.public_bytes(Encoding.PEM))
    return path


@pytest.mark.parametrize("implicit", [False, True])
def test_a_password_goes_in_tls_to_a_server_that_proves_its_name(
    elsewhere: str, certificate: Path, monkeypatch: pytest.MonkeyPatch, implicit: bool
) -> None:
    """R210: by STARTTLS or from the first byte; not to one whose certificate nobody vouches for, or is another's."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate)
    scheme = "smtps" if implicit else "smtp"
    with MailSink(LOGIN, context, implicit=implicit) as sink:
        url = sink.url.replace("127.0.0.1", elsewhere)
        problem = "the primary mail server has a certificate that is not trusted here"
        assert url.startswith(f"{scheme}://")
        assert Mailer(url, None, SENDER).send(NOTICE) == Delivery(Sent.REFUSED, None, problem)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        assert Mailer(sink.url, None, SENDER).send(NOTICE) == Delivery(Sent.REFUSED, None, problem)
        assert sink.logins == [] and sink.messages == []
        assert Mailer(url, None, SENDER).send(NOTICE) == Delivery(Sent.DELIVERED, "primary", None)
        assert sink.logins == [LOGIN] and len(sink.messages) == 1


def test_a_server_that_speaks_no_tls_is_no_smtps_server(primary: MailSink) -> None:
    """R210: and is not spoken to in clear."""
    delivery = Mailer(f"smtps://127.0.0.1:{primary.port}", None, SENDER).send(NOTICE)
    assert delivery == Delivery(Sent.REFUSED, None, "the primary mail server does not speak TLS as it should")


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("smtp://mail.example.org", "mail.example.org", 25),
        ("smtp://mail.example.org/", "mail.example.org", 25),
        ("SMTP://localhost:2525", "localhost", 2525),
        ("smtp://user:hunter2@mail.example.org", "mail.example.org", 587),
        ("smtp://us%40er:hunter%2F2@[::1]:65535", "::1", 65535),
        ("smtps://mail.example.org", "mail.example.org", 465),
        ("smtps://user:hunter2@10.0.0.1", "10.0.0.1", 465),
    ],
)
def test_a_url_names_a_server(monkeypatch: pytest.MonkeyPatch, url: str, host: str, port: int) -> None:
    """R210: its port is that of its kind, if it names none."""
    asked: list[tuple[str, int]] = []

    def connect(address: tuple[str, int], *_: object) -> socket.socket:
        asked.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    assert check_smtp_url(url) == url
    assert Mailer(url, None, SENDER).send(NOTICE).problem == "the primary mail server cannot be reached"
    assert asked == [(host, port)]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "mail.example.org",
        "http://hunter2@mail.example.org",
        "smtp://",
        "smtp://hunter2@mail.example.org",
        "smtp://user:@mail.example.org",
        "smtp://:hunter2@mail.example.org",
        "smtp://user:hunter2@@mail.example.org",
        "smtp://user:hunter2/@mail.example.org",
        "smtp://user:hunter2%@mail.example.org",
        "smtp://user:hunter2%0A@mail.example.org",
        "smtp://user:hunter2%00@mail.example.org",
        "smtp://user:hunter2ä@mail.example.org",
        "smtp://user:hunter2@mail..example.org",
        "smtp://user:hunter2@mail.example.org:0",
        "smtp://user:hunter2@mail.example.org:65536",
        "smtp://user:hunter2@mail.example.org:25x",
        "smtp://user:hunter2@mail.example.org/path",
        "smtp://user:hunter2@mail.example.org?tls=no",
        "smtp://user:hunter2@mail.example.org\n",
        "smtp://user:hunter2@[::zz]",
        "smtp://user:hunter2@[1:2]",
        "smtp://user:hunter2@::1",
    ],
)
def test_a_url_that_names_none_is_refused(url: str) -> None:
    """R210: in a sentence that does not repeat it."""
    for use in (check_smtp_url, lambda text: Mailer(text, None, SENDER), lambda text: Mailer(None, text, SENDER)):
        with pytest.raises(ValueError, match=r"a mail server is named smtp://\[user:password@\]host") as refused:
            use(url)
        assert "hunter2" not in str(refused.value)
        assert refused.value.__cause__ is None and (refused.value.__context__ is None or refused.value.__suppress_context__)
