"""Calls over HTTP: their categories, and what bounds them."""

import threading
from collections.abc import Iterator
from contextlib import suppress

import httpx2
import pytest

from scribe_pipeline.engines import wire
from scribe_pipeline.engines.wire import Refusal, bounded_client, category_of, translated
from scribe_pipeline.errors import Category, ScribeError
from tests.providers import Fault, Provider

SHOW = {"model": "reader-1"}
HASTY, MANY = 1.0, 20_000


@pytest.fixture
def double() -> Iterator[Provider]:
    """A server that wants no key."""
    with Provider("ollama", key=None) as provider:
        yield provider


def test_no_status_but_a_few_can_pass() -> None:
    """R14, R19: of all that is no success, 408, 429 and what the server itself has failed at may pass."""
    passing = {status for status in range(300, 600) if category_of(status).retryable}
    assert passing == {408, 429} | set(range(500, 600))
    assert {status for status in range(300, 600) if category_of(status) is Category.AUTHENTICATION} == {401, 403}


def test_a_wrong_key_is_no_bad_request() -> None:
    """R19: Google answers it with 400; that a text only speaks of such a key is no reason."""
    assert category_of(400, b'{"error": {"details": [{"reason" : "API_KEY_INVALID"}]}}') is Category.AUTHENTICATION
    assert category_of(400, b'{"error": {"message": "no field API_KEY_INVALID"}}') is Category.INVALID_REQUEST
    assert category_of(500, b'{"reason": "API_KEY_INVALID"}') is Category.UPSTREAM


@pytest.mark.parametrize(
    ("raised", "category"),
    [
        (Refusal(Category.RATE_LIMITED), Category.RATE_LIMITED),
        (httpx2.ConnectTimeout("at http://secret"), Category.TIMEOUT),
        (httpx2.PoolTimeout("at http://secret"), Category.TIMEOUT),
        (httpx2.ConnectError("at http://secret"), Category.TRANSPORT),
        (httpx2.RemoteProtocolError("at http://secret"), Category.TRANSPORT),
        (UnicodeDecodeError("utf-8", b"secret", 0, 1, "secret"), Category.INVALID_RESPONSE),
        (RecursionError("secret"), Category.INVALID_RESPONSE),
    ],
)
def test_what_a_client_raises_is_told_in_our_own_words(raised: Exception, category: Category) -> None:
    """R21: nothing of its words, and nothing chained."""

    def call() -> None:
        raise raised

    with pytest.raises(ScribeError) as caught:
        translated("reader", call)
    assert caught.value.category is category
    assert "secret" not in caught.value.message and caught.value.message.startswith("reader ")
    assert caught.value.__cause__ is None and caught.value.__context__ is None


@pytest.mark.parametrize("raised", [ZeroDivisionError(), ScribeError(Category.UNAVAILABLE, "no key")])
def test_what_is_no_providers_doing_is_left_as_it_is(raised: Exception) -> None:
    """R112: an unknown failure stays one."""

    def call() -> None:
        raise raised

    with pytest.raises(type(raised)) as caught:
        translated("reader", call)
    assert caught.value is raised


def test_a_client_asks_only_who_it_is_told_to(double: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """R161: no proxy of the environment stands between."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    assert bounded_client(30, 1000, 1000).post(f"{double.endpoint}/api/show", json=SHOW).is_success


def test_each_call_has_its_own_time(double: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """R110: a connection that is kept has no part in the time of the call before."""
    client = bounded_client(30, 1000, 1000)
    now = [1000.0]
    monkeypatch.setattr(wire.time, "monotonic", lambda: now[0])
    for _ in range(3):
        assert client.post(f"{double.endpoint}/api/show", json=SHOW).is_success
        now[0] += 60


def test_threads_that_share_a_client_do_not_share_their_time(double: Provider) -> None:
    """R110: one that waits in vain is given none of the others' time."""
    client = bounded_client(HASTY, 10_000_000, 10_000_000)
    double.order(Fault.DRIP)
    picture = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNoAAAAggCBd81ytgAAAABJRU5ErkJggg=="
    reading = SHOW | {"prompt": "", "images": [picture], "stream": False, "options": {"num_predict": 1}}
    failed: list[Category] = []

    def wait_in_vain() -> None:
        try:
            translated("reader", lambda: client.post(f"{double.endpoint}/api/generate", json=reading))
        except ScribeError as error:
            failed.append(error.category)

    thread = threading.Thread(target=wait_in_vain)
    thread.start()
    calls = 0
    # as long as others call, it could go on for ever if their time were its own
    while thread.is_alive() and calls < MANY:
        with suppress(httpx2.TimeoutException):  # this thread may have to wait for its turn, too
            assert client.post(f"{double.endpoint}/api/show", json=SHOW).is_success
        calls += 1
    thread.join()
    assert failed == [Category.TIMEOUT] and calls < MANY and double.refused == []
