"""Transcribers that are asked over HTTP, one crop a call: Gemini, OpenAI and what speaks like it, GLM-OCR, Ollama.

Vendors' clients make the requests where there are any; their own retries are off, as the queue's are the only ones.
"""

import base64
import io
from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib import metadata
from typing import Any, ClassVar

import httpx2
from PIL import Image
from pydantic import BaseModel

from scribe_pipeline.engines.answers import PROMPT, read_answer
from scribe_pipeline.engines.containers import LineText, ReadingOptions
from scribe_pipeline.engines.images import Pixels
from scribe_pipeline.engines.models import Model
from scribe_pipeline.engines.wire import Refusal, bounded_client, translated
from scribe_pipeline.errors import Category, ScribeError

# Smaller than this, nothing can be read.
_MIN_SIDE = 16
_GLM_PROMPT = "Text Recognition:"
# Why Gemini stops before the end: no more tokens are left, or it will not say what it has read.
_GEMINI_CUT = frozenset({"MAX_TOKENS", "CONTINUATION"})
_GEMINI_WITHHELD = frozenset(
    {"SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "ESCALATION", "MODEL_ARMOR"}
)


class RemoteTranscriber(ABC):
    """A model behind an address. Calls may be made by several threads at once."""

    concurrent: ClassVar[bool] = True
    proven: ReadingOptions | None = None
    version: ClassVar[Callable[[], str]]

    def __init__(self, model: Model, seconds: float) -> None:
        self.model = model
        try:
            self._http = bounded_client(seconds, model.max_request_bytes, model.max_response_bytes)
        except OSError:
            problem = f"{model.id}: the certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read"
            raise ScribeError(Category.UNAVAILABLE, problem) from None

    def transcribe(self, crop: Pixels, options: ReadingOptions) -> LineText | Category:
        """Read one line crop, (height, width, 3) RGB. A blank answer has an empty value; no confidence is known.

        An answer that was cut off at the model's `max_output_tokens` is RESPONSE_TOO_LARGE, this line's own failure. Raises
        ScribeError with the category of what the provider did.
        """
        png = _png(crop, self.model.max_image_side, self.model.max_request_bytes)
        try:
            answer = translated(self.model.id, lambda: self._ask(png, options))
        except ScribeError as error:
            if not error.category.retryable:
                # a key may be taken back, a model go away
                self.proven = None
            raise
        self.proven = options
        return answer if isinstance(answer, Category) else LineText(read_answer(answer), None)

    def probe(self) -> None:
        """Ask whether the model is there, without having it read anything. Raises ScribeError."""
        try:
            translated(self.model.id, self._probe)
        except (AttributeError, TypeError, KeyError):
            raise ScribeError(Category.INVALID_RESPONSE, f"{self.model.id} gave an answer that cannot be read") from None
        except ScribeError as error:
            if error.category is not Category.INVALID_REQUEST:
                raise
            raise ScribeError(error.category, f"{self.model.id}: there is no model {self.model.name} at its endpoint") from None

    @abstractmethod
    def _ask(self, png: bytes, options: ReadingOptions) -> str | Category:
        """Send one crop and return the answer's text: empty if there is none, or the provider would not say.

        A Category is why this line alone has none.
        """

    @abstractmethod
    def _probe(self) -> None:
        """Make the provider's cheapest request that names the model."""


class Gemini(RemoteTranscriber):
    """Google's Gemini API."""

    version = staticmethod(lambda: f"google-genai {metadata.version('google-genai')}")

    def __init__(self, model: Model, seconds: float) -> None:
        super().__init__(model, seconds)
        from google import genai
        from google.genai import types

        key = model.key
        # it would make one of its own for calls that nobody makes, with what the environment says of proxies
        unused = httpx2.AsyncClient(trust_env=False)
        options = types.HttpOptions(
            base_url=model.endpoint, api_version="v1beta", httpx_client=self._http, httpx_async_client=unused
        )
        self._client = genai.Client(api_key=key.get_secret_value() if key else "none", vertexai=False, http_options=options)

    def _ask(self, png: bytes, options: ReadingOptions) -> str | Category:
        from google.genai import types

        config = types.GenerateContentConfig(
            temperature=options.temperature,
            system_instruction=options.prompt,
            max_output_tokens=self.model.max_output_tokens,
        )
        parts = [types.Part.from_bytes(data=png, mime_type="image/png"), types.Part.from_text(text=PROMPT)]
        answer = self._called(
            lambda: self._client.models.generate_content(
                model=self.model.name, contents=types.Content(role="user", parts=parts), config=config
            )
        )
        if not answer.candidates:
            # without a candidate it says why, unless the answer is none at all
            if answer.prompt_feedback is None or answer.prompt_feedback.block_reason is None:
                raise Refusal(Category.INVALID_RESPONSE)
            return ""
        (candidate, *_) = answer.candidates
        if candidate.finish_reason is None and candidate.content is None:
            raise Refusal(Category.INVALID_RESPONSE)
        if candidate.finish_reason in _GEMINI_CUT:
            return Category.RESPONSE_TOO_LARGE
        if candidate.finish_reason in _GEMINI_WITHHELD or candidate.content is None or candidate.content.parts is None:
            return ""
        return "".join(part.text for part in candidate.content.parts if part.text and not part.thought)

    def _probe(self) -> None:
        found = self._called(lambda: self._client.models.get(model=self.model.name))
        if not isinstance(found.name, str) or not found.name.endswith(self.model.name):
            raise Refusal(Category.INVALID_RESPONSE)

    def _called(self, call: Callable[[], Any]) -> Any:
        from google.genai import errors

        try:
            return call()
        except (errors.APIError, ValueError, TypeError, AttributeError, KeyError):
            # the client takes an answer apart without looking
            raise Refusal(Category.INVALID_RESPONSE) from None


class OpenAi(RemoteTranscriber):
    """OpenAI's chat completions, and servers that speak like it."""

    version = staticmethod(lambda: f"openai {metadata.version('openai')}")
    _prompt = PROMPT

    def __init__(self, model: Model, seconds: float) -> None:
        super().__init__(model, seconds)
        import openai

        key = model.key
        self._client = openai.OpenAI(
            api_key=key.get_secret_value() if key else "none",
            base_url=model.endpoint,
            max_retries=0,
            http_client=self._http,
        )
        # these it takes from the environment, whoever the server belongs to
        self._client.organization = self._client.project = None

    def _ask(self, png: bytes, options: ReadingOptions) -> str | Category:
        url = f"data:image/png;base64,{base64.b64encode(png).decode()}"
        content = [{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": self._prompt}]
        messages: list[Any] = [{"role": "user", "content": content}]
        if options.prompt:
            messages.insert(0, {"role": "system", "content": options.prompt})
        asked: dict[str, Any] = {
            "model": self.model.name,
            "messages": messages,
            "max_completion_tokens": self.model.max_output_tokens,
        }
        if options.temperature is not None:
            asked["temperature"] = options.temperature
        answer = self._called(lambda: self._client.chat.completions.create(**asked))
        # the client hands on whatever JSON it gets
        match answer.model_dump(exclude_unset=True, warnings=False) if isinstance(answer, BaseModel) else None:
            case {"choices": [{"finish_reason": "length"}, *_]}:
                return Category.RESPONSE_TOO_LARGE
            case {"choices": [{"finish_reason": "content_filter"}, *_]}:
                return ""
            case {"choices": [{"finish_reason": "error"}, *_]}:
                raise Refusal(Category.UPSTREAM)
            case {"choices": [{"message": {"content": str(text)}}, *_]}:
                return text
            case {"choices": [{"message": {"content": list(parts)}}, *_]}:
                return "".join(map(_text_of_part, parts))
            case {"choices": [{"message": {"content": None} | {"refusal": str()}}, *_]}:
                return ""
        raise Refusal(Category.INVALID_RESPONSE)

    def _probe(self) -> None:
        try:
            found = self._called(lambda: self._client.models.retrieve(self.model.name))
        except Refusal as error:
            if error.category is not Category.INVALID_REQUEST:
                raise
            found = None
        if found is None:
            # a server that speaks like OpenAI's may not tell of one model
            self._look_in_list()
        elif not isinstance(getattr(found, "id", None), str):
            raise Refusal(Category.INVALID_RESPONSE)

    def _look_in_list(self) -> None:
        try:
            models = self._called(lambda: self._client.models.list()).data
        except Refusal as error:
            if error.category is not Category.INVALID_REQUEST:
                raise
            models = None
        if not isinstance(models, list):
            said = f"{self.model.id}: its endpoint does not tell which models it has; see whether it is the right one"
            raise ScribeError(Category.INVALID_RESPONSE, said)
        if self.model.name not in [model.id for model in models]:
            raise Refusal(Category.INVALID_REQUEST)

    def _called(self, call: Callable[[], Any]) -> Any:
        import openai

        try:
            return call()
        except openai.APIConnectionError as error:
            if error.__cause__ is None:
                raise Refusal(Category.TRANSPORT) from None
            raise error.__cause__ from None


class GlmOcr(OpenAi):
    """GLM-OCR behind a server that speaks like OpenAI's, such as vLLM or SGLang; it knows this prompt."""

    _prompt = _GLM_PROMPT

    def _probe(self) -> None:
        # such servers list their models and do not all tell of one
        self._look_in_list()


class Ollama(RemoteTranscriber):
    """A model of an Ollama server, by its own call: with pictures, the one that speaks like OpenAI's is not reliable."""

    version = staticmethod(lambda: f"httpx2 {metadata.version('httpx2')}")

    def _ask(self, png: bytes, options: ReadingOptions) -> str | Category:
        prompt = _GLM_PROMPT if "glm-ocr" in self.model.name else PROMPT
        asked: dict[str, Any] = {
            "model": self.model.name,
            "prompt": prompt,
            "images": [base64.b64encode(png).decode()],
            "stream": False,
            "options": {"num_predict": self.model.max_output_tokens},
        }
        if options.prompt:
            asked["system"] = options.prompt
        if options.temperature is not None:
            asked["options"]["temperature"] = options.temperature
        answer = self._post("/api/generate", asked)
        match answer:
            case {"done": False}:
                raise Refusal(Category.INVALID_RESPONSE)
            case {"response": str(), "done_reason": "length"}:
                return Category.RESPONSE_TOO_LARGE
            case {"response": str(text)}:
                return text
        raise Refusal(Category.INVALID_RESPONSE)

    def _probe(self) -> None:
        found = self._post("/api/show", {"model": self.model.name})
        if not isinstance(found, dict) or not found or "error" in found:
            raise Refusal(Category.INVALID_RESPONSE)

    def _post(self, path: str, body: dict[str, Any]) -> Any:
        key = self.model.key
        headers = {"Authorization": f"Bearer {key.get_secret_value()}"} if key else {}
        assert self.model.endpoint is not None
        return self._http.post(self.model.endpoint.rstrip("/") + path, json=body, headers=headers).json()


def _text_of_part(part: Any) -> str:
    match part:
        case {"type": "text", "text": str(text)}:
            return text
    return ""


def _png(crop: Pixels, max_side: int, max_request: int) -> bytes:
    """Return the crop no larger than it may be; in base64, with what is said beside it, it takes half as much again."""
    picture = Image.fromarray(crop)
    picture.thumbnail((max_side, max_side))
    while True:
        out = io.BytesIO()
        picture.save(out, "PNG")
        if 1.5 * len(out.getvalue()) <= max_request or min(picture.size) <= _MIN_SIDE:
            return out.getvalue()
        picture = picture.reduce(2)
