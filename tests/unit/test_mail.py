"""The send path: which server is asked, what is known of a message afterwards, what it looks like, and what is never said."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.outcomes.mail import Delivery, Mail, Mailer, Sent, check_address
from tests.mail_sink import CONNECT, CUT, DATA, DRIP, END, HANGING, LOST, MAIL, NOOP, QUIT, RCPT, MailSink

SENDER = "Scribe <scribe@example.org>"
NOTICE = Mail("admin@example.org", "A page failed", "It says “Größe”.\n", "<p>It says <b>“Größe”</b>.</p>", "notice-1.2")


@pytest.fixture(scope="module")
def both() -> Iterator[tuple[MailSink, MailSink]]:
    with MailSink() as primary, MailSink() as failover:
        yield primary, failover


@pytest.fixture
def primary(both: tuple[MailSink, MailSink]) -> MailSink:
    both[0].clear()
    both[0].start()
    return both[0]


@pytest.fixture
def failover(both: tuple[MailSink, MailSink]) -> MailSink:
    both[1].clear()
    return both[1]


@pytest.fixture
def mailer(primary: MailSink, failover: MailSink) -> Mailer:
    return Mailer(primary.url, failover.url, SENDER, patience=30)


def test_a_message_goes_to_the_primary_alone(mailer: Mailer, primary: MailSink, failover: MailSink) -> None:
    """R210: the category is alert, in each transport's way of saying so; both parts are readable, and the id is the key's."""
    assert mailer.send(NOTICE) == Delivery(Sent.DELIVERED, "primary", None)
    assert failover.sessions == 0
    (taken,) = primary.messages
    assert taken.sender == "scribe@example.org" and taken.recipients == ["admin@example.org"]
    headers = {name: str(value) for name, value in taken.message.items()}
    assert datetime.now(UTC) - taken.message["Date"].datetime < timedelta(minutes=5)
    assert headers.pop("Date") and headers.pop("Content-Type").startswith("multipart/alternative;")
    assert headers == {
        "From": SENDER,
        "To": "admin@example.org",
        "Subject": "A page failed",
        "Message-ID": "<notice-1.2@example.org>",
        "Resend-Idempotency-Key": "notice-1.2",
        "Auto-Submitted": "auto-generated",
        "X-Category": "alert",
        "X-SES-MESSAGE-TAGS": "category=alert",
        "MIME-Version": "1.0",
    }
    assert [part.get_content_type() for part in taken.message.iter_parts()] == ["text/plain", "text/html"]
    assert (taken.text, taken.html) == (NOTICE.text, NOTICE.html + "\n")


CERTAIN = [(code, at) for at in (CONNECT, MAIL, RCPT, DATA, END) for code in (421, 451, 452, 550)] + [
    (kind, at) for at in (CONNECT, MAIL, RCPT, DATA) for kind in (LOST, CUT)
]


@pytest.mark.parametrize(("kind", "at"), CERTAIN)
def test_what_the_primary_certainly_did_not_take_goes_by_the_failover(
    mailer: Mailer, primary: MailSink, failover: MailSink, kind: int | str, at: str
) -> None:
    """R210: once, and it is said what the primary did: by its code, not in its words."""
    primary.order(kind, at)
    delivery = mailer.send(NOTICE)
    assert (delivery.result, delivery.transport) == (Sent.DELIVERED, "failover")
    assert delivery.problem and delivery.problem.startswith("the primary mail server ")
    assert str(kind) in delivery.problem if isinstance(kind, int) else "broke the connection off" in delivery.problem
    assert "ordered" not in delivery.problem and "@" not in delivery.problem
    assert (primary.sessions, failover.sessions) == (1, 1)
    assert primary.messages == [] and len(failover.messages) == 1


def test_a_primary_that_is_down_is_passed_over(mailer: Mailer, primary: MailSink, failover: MailSink) -> None:
    """R210: and asked again as soon as it is up."""
    primary.stop()
    assert mailer.send(NOTICE) == Delivery(Sent.DELIVERED, "failover", "the primary mail server cannot be reached")
    primary.start()
    assert mailer.send(NOTICE) == Delivery(Sent.DELIVERED, "primary", None)
    assert len(failover.messages) == len(primary.messages) == 1


def test_a_message_that_both_refuse_is_refused(mailer: Mailer, primary: MailSink, failover: MailSink) -> None:
    """R210: each is asked once, and it is said what each did."""
    primary.order(421, MAIL)
    failover.order(550, RCPT)
    problem = "the primary mail server refused the sender (421); the failover mail server refused the recipient (550)"
    assert mailer.send(NOTICE) == Delivery(Sent.REFUSED, None, problem)
    assert (primary.sessions, failover.sessions) == (1, 1)
    assert primary.messages == failover.messages == []


@pytest.mark.parametrize(("kind", "taken"), [(LOST, 1), (CUT, 0)])
def test_a_message_whose_answer_never_came_is_not_sent_again(
    mailer: Mailer, primary: MailSink, failover: MailSink, kind: str, taken: int
) -> None:
    """R210: nobody knows whether the primary has it (DESIGN B9), so the failover is not asked."""
    primary.order(kind)
    problem = "the primary mail server broke the connection off after the message was sent, and may have taken it"
    assert mailer.send(NOTICE) == Delivery(Sent.UNKNOWN, "primary", problem)
    assert len(primary.messages) == taken and failover.sessions == 0


def test_nor_one_that_the_failover_may_have(mailer: Mailer, primary: MailSink, failover: MailSink) -> None:
    """R210: the same holds for the second server."""
    primary.order(451)
    failover.order(LOST)
    delivery = mailer.send(NOTICE)
    assert (delivery.result, delivery.transport) == (Sent.UNKNOWN, "failover")
    assert delivery.problem and "(451); the failover mail server broke" in delivery.problem
    assert primary.messages == [] and len(failover.messages) == 1


@pytest.mark.parametrize("kind", [HANGING, DRIP])
def test_a_server_that_never_ends_its_answer_is_left(primary: MailSink, failover: MailSink, kind: str) -> None:
    """R210: whether it is silent or keeps talking; it has the message, and the sender cannot know that."""
    primary.order(kind)
    problem = "the primary mail server did not answer in time after the message was sent, and may have taken it"
    delivery = Mailer(primary.url, failover.url, SENDER, patience=1).send(NOTICE)
    assert delivery == Delivery(Sent.UNKNOWN, "primary", problem)
    assert len(primary.messages) == 1 and failover.sessions == 0


def test_a_server_that_hangs_before_the_message_has_not_taken_it(primary: MailSink, failover: MailSink) -> None:
    """R210: so the failover is asked."""
    primary.order(HANGING, RCPT)
    delivery = Mailer(primary.url, failover.url, SENDER, patience=1).send(NOTICE)
    assert delivery == Delivery(Sent.DELIVERED, "failover", "the primary mail server did not answer in time")
    assert primary.messages == [] and len(failover.messages) == 1


@pytest.mark.parametrize("kind", [421, 550, LOST, CUT])
def test_how_a_server_says_goodbye_changes_nothing(mailer: Mailer, primary: MailSink, failover: MailSink, kind: int | str) -> None:
    """R210: what was taken is delivered."""
    primary.order(kind, QUIT)
    assert mailer.send(NOTICE) == Delivery(Sent.DELIVERED, "primary", None)
    assert len(primary.messages) == 1 and failover.sessions == 0 and primary.orders == []


@pytest.mark.parametrize(("code", "result"), [(251, Sent.DELIVERED), (354, Sent.UNKNOWN), (199, Sent.UNKNOWN), (600, Sent.UNKNOWN)])
def test_an_answer_that_is_no_refusal_is_none(
    mailer: Mailer, primary: MailSink, failover: MailSink, code: int, result: Sent
) -> None:
    """R210: only a code of the fours and fives says that a message is not taken."""
    primary.order(code)
    assert mailer.send(NOTICE).result is result
    assert failover.sessions == 0


def test_a_message_has_the_same_id_whenever_and_by_whom_it_is_sent(mailer: Mailer, primary: MailSink, failover: MailSink) -> None:
    """R210: so that who gets it twice can tell; the longest key is not broken or encoded on its way."""
    mail = Mail(NOTICE.recipient, NOTICE.subject, NOTICE.text, NOTICE.html, "k" * 54)
    primary.order(LOST)
    mailer.send(mail)
    primary.order(550)
    mailer.send(mail)
    told = [taken.message for sink in (primary, failover) for taken in sink.messages]
    assert [(message["Message-ID"].strip(), message["Resend-Idempotency-Key"]) for message in told] == [
        (f"<{'k' * 54}@example.org>", "k" * 54)
    ] * 2


@pytest.mark.parametrize("key", ["", "a b", "a\r\nBcc: x@example.org", "a\n", "a>", "a..b", ".a", "ä", "k" * 55])
def test_a_key_is_what_a_message_id_can_be_made_of(key: str) -> None:
    """R210: anything else is a mistake in the program."""
    with pytest.raises(ValueError, match="key of a message"):
        Mail(NOTICE.recipient, NOTICE.subject, NOTICE.text, NOTICE.html, key)


@pytest.mark.parametrize("stop", ["\r\n", "\n", "\r", "\r\n\r\n", "\v", "\f", "\x1c", "\x85", "\u2028", "\0"])
def test_nothing_gets_into_the_headers(mailer: Mailer, primary: MailSink, stop: str) -> None:
    """R210: a subject is one line, whatever is in it."""
    evil = f"Failed{stop}Bcc: thief@example.org{stop}{stop}body"
    mailer.send(Mail(NOTICE.recipient, evil, NOTICE.text, NOTICE.html, "k"))
    (taken,) = primary.messages
    assert taken.recipients == [NOTICE.recipient] and taken.message["Bcc"] is None
    assert taken.message["Subject"] == "Failed Bcc: thief@example.org body"


@pytest.mark.parametrize(
    "address",
    [
        "",
        "admin",
        "@example.org",
        "admin@",
        "a@b@c",
        "a@b, c@d",
        "<a@b>",
        "A <a@b>",
        "a@b\r\nRCPT TO:<c@d>",
        "a@b\n",
        "a b@c",
        "\ud800@b",
    ],
)
def test_an_address_is_one_and_nothing_else(mailer: Mailer, primary: MailSink, address: str) -> None:
    """R210: with any other no server is asked."""
    with pytest.raises(ValueError, match="no e-mail address") as refused:
        check_address(address)
    assert not address or address not in str(refused.value)
    mail = Mail(address, NOTICE.subject, NOTICE.text, NOTICE.html, "k")
    assert mailer.send(mail) == Delivery(Sent.REFUSED, None, "the recipient is no e-mail address")
    assert primary.sessions == 0
    with pytest.raises(ValueError, match="no e-mail address"):
        Mailer(None, None, f"Scribe <{address}>" if "<" not in address else "")


def test_any_text_can_be_sent(primary: MailSink, mailer: Mailer) -> None:
    """R210: halves of characters, NULs, line breaks of any kind, marks of any script; by a server that knows ASCII only."""

    @example("half \ud83d of one", "\udfff and \0 and\ud83d\n.\n")
    @given(st.text(st.characters(codec=None), max_size=200), st.text(st.characters(codec=None), max_size=200))
    def sent(subject: str, text: str) -> None:
        primary.clear()
        mail = Mail(NOTICE.recipient, subject, text, f"<p>{text}</p>", "k")
        assert mailer.send(mail).result is Sent.DELIVERED
        (taken,) = primary.messages
        expected = re.sub("\r\n?", "\n", re.sub("[\0\ud800-\udfff]", "\ufffd", text))
        assert taken.text.removesuffix("\n") == expected.removesuffix("\n")
        assert taken.html == f"<p>{expected}</p>\n"
        assert {part["Content-Transfer-Encoding"] for part in taken.message.iter_parts()} <= {"7bit", "quoted-printable", "base64"}
        assert taken.message["Subject"].split() == "".join(char if char.isprintable() else " " for char in subject).split()

    sent()


def test_a_message_is_not_ended_by_a_dot_in_it(mailer: Mailer, primary: MailSink) -> None:
    """R210: nor can it give the server commands."""
    text = "before\n.\nMAIL FROM:<thief@example.org>\n..\n" + "x" * 3000 + "\n"
    mailer.send(Mail(NOTICE.recipient, "s", text, "<p>.</p>", "k"))
    (taken,) = primary.messages
    assert taken.text == text


def test_an_address_beyond_ascii_goes_where_it_is_taken(primary: MailSink) -> None:
    """R210: and is refused by a server that does not know such."""
    mail = Mail("jörg@müller.example", "Größe", "ä\n", "<p>ä</p>", "k")
    with MailSink(utf8=False) as old:
        delivery = Mailer(old.url, primary.url, SENDER).send(mail)
        problem = "the primary mail server takes no addresses beyond ASCII"
        assert delivery == Delivery(Sent.DELIVERED, "failover", problem)
        assert Mailer(old.url, None, SENDER).send(mail) == Delivery(Sent.REFUSED, None, problem)
    (taken,) = primary.messages
    assert taken.recipients == ["jörg@müller.example"] and taken.message["To"] == "jörg@müller.example"
    assert taken.message["Subject"] == "Größe"


def test_a_check_is_content_with_one_server_that_answers(mailer: Mailer, primary: MailSink, failover: MailSink) -> None:
    """R210: and sends nothing; if none does, it says what each did."""
    mailer.check()
    assert (primary.sessions, failover.sessions) == (1, 0)
    primary.order(450, NOOP)
    mailer.check()
    assert (primary.sessions, failover.sessions) == (2, 1)
    primary.stop()
    mailer.check()
    failover.order(421, CONNECT)
    with pytest.raises(ScribeError) as refused:
        mailer.check()
    assert refused.value.category is Category.UNAVAILABLE
    problem = "the primary mail server cannot be reached; the failover mail server refused the connection (421)"
    assert refused.value.message == problem
    assert failover.messages == []


def test_a_mailer_without_servers_sends_nothing() -> None:
    """R210: and says so."""
    mailer = Mailer(None, None, SENDER)
    assert mailer.send(NOTICE) == Delivery(Sent.REFUSED, None, "no mail server is configured")
    with pytest.raises(ScribeError, match="no mail server is configured"):
        mailer.check()


def test_a_failover_may_be_alone(failover: MailSink) -> None:
    """R210: whichever of the two is configured is used."""
    mailer = Mailer(None, failover.url, "scribe@example.org")
    assert mailer.send(NOTICE) == Delivery(Sent.DELIVERED, "failover", None)
