"""The engines with keys, each against a server that speaks like its vendor's: what is sent, what is taken, what failures become."""

import logging
import os
import pickle
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from typing import Any

import numpy as np
import pytest
from PIL import Image

from scribe_pipeline.engines import LineText, ReadingOptions
from scribe_pipeline.engines.images import Pixels
from scribe_pipeline.engines.models import Model
from scribe_pipeline.engines.remote import Gemini, GlmOcr, Ollama, OpenAi, RemoteTranscriber
from scribe_pipeline.errors import Category, ScribeError
from tests.proofs import wait_until
from tests.provider_dialects import OpenAi as OpenAiDialect
from tests.provider_dialects import Vllm
from tests.providers import KEY, Fault, Provider

CLIENTS: dict[str, type[RemoteTranscriber]] = {"gemini": Gemini, "openai": OpenAi, "glm-ocr": GlmOcr, "ollama": Ollama}
CROP = np.asarray(Image.effect_noise((300, 40), 90).convert("RGB"))
OPTIONS = ReadingOptions()
PATIENT, HASTY = 30.0, 1.0


@pytest.fixture(scope="module")
def doubles() -> Iterator[dict[str, Provider]]:
    """One provider of each kind."""
    with ExitStack() as stack:
        yield {kind: stack.enter_context(Provider(kind)) for kind in CLIENTS}


@pytest.fixture(params=CLIENTS)
def double(request: pytest.FixtureRequest, doubles: dict[str, Provider], monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """A provider that wants a key, which is there. Nothing is asked otherwise than its vendor documents."""
    monkeypatch.setenv("TEST_PROVIDER_KEY", KEY)
    provider = doubles[request.param]
    provider.clear()
    yield provider
    assert provider.refused == []


def client(double: Provider, seconds: float = PATIENT, **limits: Any) -> RemoteTranscriber:
    """The engine that asks the provider, with the key that is there now."""
    return _client(Model.model_validate(double.model(**limits)), seconds, os.environ.get("TEST_PROVIDER_KEY"))


@cache
def _client(model: Model, seconds: float, _key: str | None) -> RemoteTranscriber:
    # vendors' clients take a while to make
    return CLIENTS[model.engine](model, seconds)


def failure(double: Provider, engine: RemoteTranscriber, crop: Pixels = CROP) -> Category:
    """The category of a reading that fails. It tells nothing but our own words."""
    with pytest.raises(ScribeError) as caught:
        engine.transcribe(crop, ReadingOptions(prompt="a prompt of the house"))
    error = caught.value
    assert error.__cause__ is None and error.__context__ is None
    shown = f"{error!r} {error} {engine!r} {pickle.dumps(error)!r} {error.__traceback__ and traceback.format_exception_only(error)}"
    assert "127.0.0.1" not in shown and "asked" not in shown
    assert KEY not in shown + repr(engine.model)
    return error.category


STATUSES = {
    202: Category.INVALID_RESPONSE,
    400: Category.INVALID_REQUEST, 401: Category.AUTHENTICATION, 403: Category.AUTHENTICATION, 404: Category.INVALID_REQUEST,
    405: Category.INVALID_REQUEST, 408: Category.TIMEOUT, 409: Category.INVALID_REQUEST, 413: Category.INVALID_REQUEST,
    422: Category.INVALID_REQUEST, 429: Category.RATE_LIMITED, 500: Category.UPSTREAM, 502: Category.UPSTREAM,
    503: Category.UPSTREAM, 504: Category.TIMEOUT, 529: Category.UPSTREAM,
}  # fmt: skip
FAULTS = {
    Fault.RESET: Category.TRANSPORT, Fault.HALF: Category.TRANSPORT, Fault.LOST: Category.TRANSPORT,
    Fault.NOT_JSON: Category.INVALID_RESPONSE, Fault.NO_OBJECT: Category.INVALID_RESPONSE, Fault.DEEP: Category.INVALID_RESPONSE,
    Fault.WRONG: Category.INVALID_RESPONSE, Fault.MISTYPED: Category.INVALID_RESPONSE, Fault.PACKED: Category.INVALID_RESPONSE,
    Fault.HOLLOW: Category.INVALID_RESPONSE, Fault.HUGE: Category.RESPONSE_TOO_LARGE, Fault.REDIRECT: Category.INVALID_REQUEST,
}  # fmt: skip


@pytest.mark.parametrize(("kind", "category"), (STATUSES | FAULTS).items(), ids=str)
def test_a_failure_has_its_category_after_one_request(double: Provider, kind: int | Fault, category: Category) -> None:
    """R14, R19, R21, R161: what a provider does has one category for every engine; nothing is tried again, no redirect followed."""
    double.order(kind, times=None, Retry_After="1")
    assert failure(double, client(double)) is category
    assert len(double.requests) == 1


@pytest.mark.parametrize("kind", [Fault.HANGING, Fault.DRIP, Fault.DRIPPING_HEADERS])
def test_an_answer_that_takes_too_long_is_left(double: Provider, kind: Fault) -> None:
    """R110: neither silence nor an answer that comes byte by byte is waited for longer than one line's time-out."""
    double.order(kind)
    assert failure(double, client(double, HASTY)) is Category.TIMEOUT
    wait_until(lambda: double.requests, "the request")
    assert len(double.requests) == 1


def test_a_provider_that_is_away_is_a_failure_that_may_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """R14: nobody listens."""
    monkeypatch.setenv("TEST_PROVIDER_KEY", KEY)
    with Provider("gemini") as gone:
        engine = client(gone)
    assert failure(gone, engine) is Category.TRANSPORT


def test_a_good_answer_is_the_lines_text(double: Provider) -> None:
    """R161: one call for a crop, with its very pixels, the context's prompt and temperature, and the key in a header."""
    double.says = lambda asked: "« Ma chère Ꝑauline » "
    text = client(double).transcribe(CROP, ReadingOptions(temperature=0.25, prompt="Old French."))
    assert text == LineText("« Ma chère Ꝑauline » ", None)
    (asked,) = double.asked
    np.testing.assert_array_equal(asked.crop, CROP)
    assert (asked.question.system, asked.question.temperature, asked.question.max_tokens) == ("Old French.", 0.25, 4096)
    assert asked.question.prompt == "Text Recognition:" if double.kind == "glm-ocr" else "Transcribe" in asked.question.prompt
    assert asked.key == KEY
    assert len(double.requests) == 1 and KEY not in double.requests[0]


def test_what_a_context_leaves_open_is_not_sent(double: Provider) -> None:
    """R99: the vendor's own temperature, and no prompt beside the one that asks for the line."""
    client(double).transcribe(CROP, OPTIONS)
    assert (double.asked[0].question.system, double.asked[0].question.temperature) == (None, None)


@pytest.mark.parametrize("double", ["gemini"], indirect=True)
@pytest.mark.parametrize(("failed", "proven"), [(503, OPTIONS), (429, OPTIONS), (401, None), (400, None)])
def test_an_answer_proves_until_a_permanent_failure(double: Provider, failed: int, proven: ReadingOptions | None) -> None:
    """R118: what may pass says nothing of the key; once a key or a request is refused, the next page asks with one line again."""
    engine = Gemini(Model.model_validate(double.model()), PATIENT)
    double.order(failed)
    failure(double, engine)
    assert engine.proven is None
    engine.transcribe(CROP, OPTIONS)
    assert engine.proven == OPTIONS
    double.order(failed)
    failure(double, engine)
    assert engine.proven == proven


@pytest.mark.parametrize("kind", [Fault.BLANK, Fault.WHITE, Fault.REFUSED])
def test_nothing_said_is_blank(double: Provider, kind: Fault) -> None:
    """R89, R111: an empty answer and one that is refused are that line's alone."""
    double.order(kind)
    assert client(double).transcribe(CROP, OPTIONS).value.strip() == ""


def test_an_answer_that_is_cut_off_is_the_lines_failure(double: Provider) -> None:
    """R89, R111, R118: half a line is no text; the key and the request were taken all the same."""
    engine = CLIENTS[double.kind](Model.model_validate(double.model()), PATIENT)
    double.order(Fault.CUT)
    assert engine.transcribe(CROP, OPTIONS) is Category.RESPONSE_TOO_LARGE
    assert engine.proven == OPTIONS


ENDINGS: dict[str, dict[Any, list[str | None]]] = {
    "gemini": {
        "text": ["STOP", None, "FINISH_REASON_UNSPECIFIED", "OTHER", "A_NEW_REASON"],
        "": ["SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "ESCALATION", "MODEL_ARMOR"],
        Category.RESPONSE_TOO_LARGE: ["MAX_TOKENS", "CONTINUATION"],
    },
    "openai": {
        "text": ["stop", None, "", "eos", "tool_calls"],
        "": ["content_filter"],
        Category.RESPONSE_TOO_LARGE: ["length"],
    },
    "ollama": {"text": ["stop", None, "", "load", "unload"], Category.RESPONSE_TOO_LARGE: ["length"]},
}


@pytest.mark.filterwarnings("ignore:A_NEW_REASON")
@pytest.mark.parametrize(
    ("double", "reason", "became"),
    [(kind, reason, became) for kind, endings in ENDINGS.items() for became, reasons in endings.items() for reason in reasons],
    indirect=["double"],
)
def test_a_text_is_taken_unless_it_is_withheld_or_cut_off(double: Provider, reason: str | None, became: str | Category) -> None:
    """R89, R161: whatever else a provider says of how an answer ended, also what is not yet documented."""
    double.answer = double.dialect.ended(reason, "text")
    read = client(double).transcribe(CROP, OPTIONS)
    assert read == (became if isinstance(became, Category) else LineText(became, None))


@pytest.mark.parametrize("double", ["openai", "glm-ocr"], indirect=True)
def test_an_answer_that_broke_off_upstream_may_be_asked_for_again(double: Provider) -> None:
    """R14: a server that hands on another's failure says so in an answer of its own."""
    double.answer = double.dialect.ended("error", "te")
    assert failure(double, client(double)) is Category.UPSTREAM


@pytest.mark.parametrize("double", ["ollama"], indirect=True)
def test_a_part_of_an_answer_is_none(double: Provider) -> None:
    """R89: what a server would go on with is not the line."""
    double.answer = double.dialect.ended(None, "te") | {"done": False}
    assert failure(double, client(double)) is Category.INVALID_RESPONSE


@pytest.mark.parametrize("double", ["openai", "glm-ocr"], indirect=True)
@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ([{"type": "text", "text": "Dear "}, {"type": "text", "text": "Sir"}], "Dear Sir"),
        ([{"type": "thinking", "text": "Is it Sir?"}, {"type": "text", "text": "Dear Sir"}, "odd"], "Dear Sir"),
        ([{"type": "refusal", "refusal": "no"}, {"type": "text", "text": 7}], ""),
        ([], ""),
    ],
)
def test_an_answer_in_parts_is_their_text(double: Provider, parts: list[Any], text: str) -> None:
    """R89, R161: parts of any other kind are not read."""
    dialect = double.dialect
    assert isinstance(dialect, OpenAiDialect)
    double.answer = dialect.in_parts(*parts)
    assert client(double).transcribe(CROP, OPTIONS) == LineText(text, None)


@pytest.mark.parametrize("kind", [Fault.FENCED, Fault.PREFIXED])
def test_what_a_chat_adds_is_no_text(double: Provider, kind: Fault) -> None:
    double.says = lambda asked: "Dear Sir"
    double.order(kind)
    assert client(double).transcribe(CROP, OPTIONS).value == "Dear Sir"


def test_no_line_gets_what_came_with_the_answer_before(double: Provider) -> None:
    """R89, R161: each call has a connection of its own, so that a second answer in the first one's packet is nobody's."""
    double.order(Fault.DOUBLED)
    engine = client(double)
    assert [engine.transcribe(CROP, OPTIONS).value for _ in range(2)] == ["line 1", "line 2"]
    for head in double.heads:
        sent = {name.lower(): value for name, value in (line.split(": ", 1) for line in head.splitlines() if line)}
        assert (sent["connection"], sent["accept-encoding"]) == ("close", "identity")


def test_a_wrong_key_is_said_to_be_one(double: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: also where the vendor calls it a bad request."""
    monkeypatch.setenv("TEST_PROVIDER_KEY", "another-key")
    engine = client(double)
    assert failure(double, engine) is Category.AUTHENTICATION
    with pytest.raises(ScribeError) as caught:
        engine.probe()
    assert caught.value.category is Category.AUTHENTICATION
    assert double.refused == ["wrong key", "wrong key"]
    double.refused.clear()


def test_a_key_that_is_not_set_is_named(double: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: another worker may have it; the provider is not asked."""
    monkeypatch.delenv("TEST_PROVIDER_KEY")
    with pytest.raises(ScribeError, match="set TEST_PROVIDER_KEY") as caught:
        client(double).transcribe(CROP, OPTIONS)
    assert caught.value.category is Category.UNAVAILABLE
    assert double.requests == []


@pytest.mark.parametrize("key", ["schlüssel", "k\u2013y", "a\nb", "a\x7fb"])
def test_a_key_with_letters_that_no_key_has_is_named(double: Provider, monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    """R19, R21: one that was copied with a dash or a line too many; its variable is told, and not the key."""
    monkeypatch.setenv("TEST_PROVIDER_KEY", key)
    with pytest.raises(ScribeError, match=r"TEST_PROVIDER_KEY, has letters that no key has$") as caught:
        client(double).transcribe(CROP, OPTIONS)
    assert caught.value.category is Category.UNAVAILABLE
    assert key not in caught.value.message and double.requests == []


@pytest.mark.parametrize("proxy", ["nonsense", "socks9://[::1", "http://127.0.0.1:9"])
def test_a_proxy_in_the_environment_changes_nothing(double: Provider, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    """R161: a model is asked where its entry says, also where a proxy's address could not be read at all."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, proxy)
        monkeypatch.setenv(name.lower(), proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    engine = CLIENTS[double.kind](Model.model_validate(double.model()), PATIENT)
    assert engine.transcribe(CROP, OPTIONS).value == "line 1"


def test_certificates_that_are_not_there_are_told_in_a_line(double: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: another worker may have them."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere/certificates.pem")
    with pytest.raises(ScribeError, match=r"^[^\n]*certificates that SSL_CERT_FILE [^\n]* cannot be read$") as caught:
        CLIENTS[double.kind](Model.model_validate(double.model()), PATIENT)
    assert caught.value.category is Category.UNAVAILABLE


def test_what_the_environment_has_for_others_is_not_sent(double: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """R21: a server gets the key that its entry names, and no other's key, account or proxy."""
    clients_own = ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_API_KEY")
    for name in (*clients_own, "GOOGLE_GEMINI_BASE_URL", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/someone-elses")
    engine = CLIENTS[double.kind](Model.model_validate(double.model()), PATIENT)
    assert engine.transcribe(CROP, OPTIONS).value == "line 1"
    (head,) = double.heads
    assert "someone-elses" not in head and "openai-organization" not in head.lower()


@pytest.mark.parametrize("kind", ["glm-ocr", "ollama"])
def test_a_server_of_ones_own_may_want_no_key(kind: str) -> None:
    """R161: it is asked without one, or with none that means anything."""
    with Provider(kind, key="none" if kind == "glm-ocr" else None) as own:
        entry = {name: value for name, value in own.model().items() if name != "key_variable"}
        assert CLIENTS[kind](Model.model_validate(entry), PATIENT).transcribe(CROP, OPTIONS).value == "line 1"


def test_no_log_tells_the_key(double: Provider, caplog: pytest.LogCaptureFixture) -> None:
    """R21: neither the key nor the prompt, whatever libraries log of what they do."""
    caplog.set_level(logging.DEBUG)
    for name in ("httpx2", "httpcore2", "openai", "google_genai", "google.genai"):
        caplog.set_level(logging.DEBUG, name)
    engine = client(double)
    engine.transcribe(CROP, ReadingOptions(prompt="a prompt of the house"))
    for kind in (401, 503, Fault.NOT_JSON, Fault.RESET):
        double.order(kind)
        failure(double, engine)
    assert caplog.records
    told = "".join(f"{record.getMessage()} {record.args} {record.exc_text}" for record in caplog.records)
    assert KEY not in told
    assert "of the house" not in told


def test_a_crop_that_is_too_large_is_sent_smaller(double: Provider) -> None:
    """R161: bounded requests; halved once, it fits."""
    assert client(double, max_request_bytes=20_000).transcribe(CROP, OPTIONS).value == "line 1"
    assert double.asked[0].crop.shape == (20, 150, 3)


def test_a_request_that_cannot_be_made_small_is_not_sent(double: Provider) -> None:
    """R161: a crop of which nothing would be left is refused before it leaves the house."""
    assert failure(double, client(double, max_request_bytes=1_000)) is Category.INVALID_REQUEST
    assert double.requests == []


def test_a_crop_is_no_larger_than_its_model_takes(double: Provider) -> None:
    """R161: bounded pictures; the sides keep their ratio."""
    client(double, max_image_side=100).transcribe(CROP, OPTIONS)
    assert double.asked[0].crop.shape == (13, 100, 3)


def test_an_error_page_without_end_is_told_by_its_status(double: Provider) -> None:
    """R14: what is written on it matters to nobody."""
    double.order(503)
    assert failure(double, client(double, max_response_bytes=10)) is Category.UPSTREAM


def test_a_probe_has_nothing_read(double: Provider) -> None:
    """R161: it asks for the model alone; one that is not there is told."""
    client(double).probe()
    assert len(double.requests) == 1 and double.asked == []
    with pytest.raises(ScribeError) as caught:
        client(double, name="reader-2").probe()
    assert caught.value.category is Category.INVALID_REQUEST
    double.refused.clear()


@pytest.mark.parametrize("untold", [404, 405])
def test_a_server_that_only_lists_its_models_is_probed(monkeypatch: pytest.MonkeyPatch, untold: int) -> None:
    """R161: one that speaks like OpenAI's need not tell of one model; a model is missing only if the list lacks it."""
    monkeypatch.setenv("TEST_PROVIDER_KEY", KEY)
    monkeypatch.setattr(Vllm, "untold", untold)
    with Provider("glm-ocr") as lister:
        client(lister, engine="openai").probe()
        assert lister.requests == ["GET /v1/models/reader-1", "GET /v1/models"] and lister.asked == []
        with pytest.raises(ScribeError, match=r"there is no model reader-2 at its endpoint$") as caught:
            client(lister, engine="openai", name="reader-2").probe()
        assert caught.value.category is Category.INVALID_REQUEST
        elsewhere = lister.endpoint.removesuffix("/v1")
        for engine in ("openai", "glm-ocr"):
            with pytest.raises(ScribeError, match=r"see whether it is the right one$") as caught:
                client(lister, engine=engine, endpoint=elsewhere).probe()
            assert caught.value.category is Category.INVALID_RESPONSE


@pytest.mark.parametrize("found", [b"<html>a proxy's page</html>", b"[]", b"null", b'{"error": {"message": "no"}}', b"{}"])
def test_a_probe_believes_no_answer_but_the_models(double: Provider, found: bytes) -> None:
    """R161: what answers 200 to everything is not ready."""
    double.found = found
    with pytest.raises(ScribeError) as caught:
        client(double).probe()
    assert caught.value.category in (Category.INVALID_RESPONSE, Category.INVALID_REQUEST)
    assert "\n" not in caught.value.message
