"""How each vendor wants to be asked and how it answers: paths, headers, fields and errors, as its reference documents them."""

import base64
import io
from abc import ABC, abstractmethod
from dataclasses import dataclass
from email.message import Message
from typing import Any

from PIL import Image


@dataclass(frozen=True)
class Question:
    """What a provider is asked to read, and how."""

    picture: Image.Image
    prompt: str
    system: str | None
    temperature: float | None
    max_tokens: int
    model: str


class NotDocumented(Exception):
    """A request that the vendor's reference does not know."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


def wanted(condition: object, reason: str, status: int = 400) -> None:
    """Refuse a request unless the condition holds."""
    if not condition:
        raise NotDocumented(reason, status)


def fields(document: Any, required: set[str], optional: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    """Refuse a request unless it is an object with these fields and no others."""
    wanted(isinstance(document, dict), "it is no object")
    wanted(required <= set(document) <= required | optional, f"fields: {sorted(document)}")


def picture(data: str) -> Image.Image:
    """The PNG in a request."""
    try:
        opened = Image.open(io.BytesIO(base64.b64decode(data, validate=True)), formats=("PNG",))
        opened.load()
    except (ValueError, OSError):
        raise NotDocumented("the picture cannot be decoded") from None
    return opened


class Dialect(ABC):
    """One vendor's. `base` is the part of its endpoint that follows the host."""

    base = ""

    @abstractmethod
    def read(self, method: str, path: str, document: Any, name: str) -> Question | dict[str, Any]:
        """Return what is asked, or the answer to a question that reads nothing. Raises NotDocumented."""

    @abstractmethod
    def good(self, text: str, mistyped: bool = False) -> dict[str, Any]:
        """The answer with this text; `mistyped` has a number in its place."""

    @abstractmethod
    def hollow(self) -> dict[str, Any]:
        """An answer in whose innermost part the text is missing."""

    @abstractmethod
    def refused(self) -> dict[str, Any]:
        """The answer when the model will not say."""

    @abstractmethod
    def ended(self, reason: str | None, text: str) -> dict[str, Any]:
        """The answer with this text that ends for this reason; None gives no reason."""

    @abstractmethod
    def cut(self, text: str) -> dict[str, Any]:
        """The answer that ends where no more tokens are left."""

    @abstractmethod
    def error(self, status: int, message: str) -> dict[str, Any]:
        """The body that comes with a status."""

    def key_of(self, headers: Message) -> str | None:
        """The key that a request brings."""
        return None if headers["Authorization"] is None else str(headers["Authorization"]).removeprefix("Bearer ")

    def wrong_key(self, key: str | None) -> tuple[int, dict[str, Any]]:
        """Status and body for a key that is wrong or missing."""
        return 401, self.error(401, f"Incorrect API key provided: {key}")


class Gemini(Dialect):
    """Google's `models.generateContent` and `models.get`, v1beta."""

    def key_of(self, headers: Message) -> str | None:
        return headers["x-goog-api-key"]

    def wrong_key(self, key: str | None) -> tuple[int, dict[str, Any]]:
        if key is None:
            return 403, self.error(403, "Method doesn't allow unregistered callers.")
        body = self.error(400, f"API key not valid: {key}")
        reason = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
        return 400, {"error": body["error"] | {"details": [reason]}}

    def read(self, method: str, path: str, document: Any, name: str) -> Question | dict[str, Any]:
        wanted(path.startswith("/v1beta/models/") and "?" not in path, path, 404)
        model, _, call = path.removeprefix("/v1beta/models/").partition(":")
        wanted(model == name, f"no model {model}", 404)
        if (method, call) == ("GET", ""):
            return {"name": f"models/{model}", "version": "1", "supportedGenerationMethods": ["generateContent"]}
        wanted((method, call) == ("POST", "generateContent"), f"{method} {path}", 404)
        fields(document, {"contents"}, {"systemInstruction", "generationConfig"})
        settings = document.get("generationConfig", {})
        fields(settings, {"maxOutputTokens"}, {"temperature"})
        wanted(len(document["contents"]) == 1, "more than one turn")
        (content,) = document["contents"]
        fields(content, {"parts", "role"})
        wanted(content["role"] == "user" and len(content["parts"]) == 2, "it is no user's picture and text")
        data, text = content["parts"]
        fields(data, {"inlineData"})
        # either form of a field's name and of base64 is protobuf's JSON
        inline = {name.replace("mime_type", "mimeType"): value for name, value in data["inlineData"].items()}
        fields(inline, {"data", "mimeType"})
        fields(text, {"text"})
        wanted(inline["mimeType"] == "image/png", "the media type is not that of the picture")
        system = None
        if "systemInstruction" in document:
            fields(document["systemInstruction"], {"parts"}, {"role"})
            system = "".join(part["text"] for part in document["systemInstruction"]["parts"])
        image = picture(inline["data"].translate(str.maketrans("-_", "+/")))
        return Question(image, text["text"], system, settings.get("temperature"), settings["maxOutputTokens"], model)

    def good(self, text: str, mistyped: bool = False) -> dict[str, Any]:
        return self._candidate("STOP", {"parts": [{"text": 7 if mistyped else text}], "role": "model"})

    def hollow(self) -> dict[str, Any]:
        return {"candidates": [{"index": 0}], "modelVersion": "1"}

    def refused(self) -> dict[str, Any]:
        return {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {"promptTokenCount": 9}, "modelVersion": "1"}

    def ended(self, reason: str | None, text: str) -> dict[str, Any]:
        return self._candidate(reason, {"parts": [{"text": text}], "role": "model"})

    def cut(self, text: str) -> dict[str, Any]:
        return self.ended("MAX_TOKENS", text[:2])

    def _candidate(self, reason: str | None, content: dict[str, Any]) -> dict[str, Any]:
        candidate = {"content": content, "index": 0} | ({} if reason is None else {"finishReason": reason})
        return {"candidates": [candidate], "usageMetadata": {"promptTokenCount": 9}, "modelVersion": "1", "responseId": "r"}

    def error(self, status: int, message: str) -> dict[str, Any]:
        names = {400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND"}
        names |= {429: "RESOURCE_EXHAUSTED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"}
        return {"error": {"code": status, "message": message, "status": names.get(status, "INTERNAL")}}


class OpenAi(Dialect):
    """OpenAI's chat completions and `models.retrieve`."""

    base = "/v1"

    def read(self, method: str, path: str, document: Any, name: str) -> Question | dict[str, Any]:
        if method == "GET":
            return self._models(path, name)
        wanted((method, path) == ("POST", "/v1/chat/completions"), f"{method} {path}", 404)
        fields(document, {"model", "messages", "max_completion_tokens"}, {"temperature"})
        wanted(document["model"] == name, f"no model {document['model']}", 404)
        *before, asked = document["messages"]
        system = None
        if before:
            wanted(len(before) == 1 and before[0]["role"] == "system", "it has more than the system's message before")
            fields(before[0], {"role", "content"})
            system = before[0]["content"]
        fields(asked, {"role", "content"})
        wanted(asked["role"] == "user" and len(asked["content"]) == 2, "it is no user's picture and text")
        seen, told = asked["content"]
        fields(seen, {"type", "image_url"})
        fields(told, {"type", "text"})
        wanted((seen["type"], told["type"]) == ("image_url", "text"), "parts have other types")
        start = "data:image/png;base64,"
        wanted(seen["image_url"]["url"].startswith(start), "the picture is no data URL")
        image = picture(seen["image_url"]["url"].removeprefix(start))
        return Question(image, told["text"], system, document.get("temperature"), document["max_completion_tokens"], name)

    def _models(self, path: str, name: str) -> dict[str, Any]:
        model = {"id": name, "object": "model", "created": 1, "owned_by": "test"}
        if path == "/v1/models":
            return {"object": "list", "data": [model]}
        wanted(path == f"/v1/models/{name}", f"GET {path}", 404)
        return model

    def good(self, text: str, mistyped: bool = False) -> dict[str, Any]:
        return self._choice("stop", {"role": "assistant", "content": 7 if mistyped else text, "refusal": None})

    def hollow(self) -> dict[str, Any]:
        return self._choice("stop", {"role": "assistant"})

    def refused(self) -> dict[str, Any]:
        return self._choice("stop", {"role": "assistant", "content": None, "refusal": "I'm sorry, I can't help with that."})

    def ended(self, reason: str | None, text: str) -> dict[str, Any]:
        return self._choice(reason, {"role": "assistant", "content": text, "refusal": None})

    def cut(self, text: str) -> dict[str, Any]:
        return self.ended("length", text[:2])

    def in_parts(self, *parts: Any) -> dict[str, Any]:
        """The answer whose content is a list, as some servers have it."""
        return self._choice("stop", {"role": "assistant", "content": parts})

    def _choice(self, reason: str | None, message: dict[str, Any]) -> dict[str, Any]:
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": reason}
        return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "reader", "choices": [choice]}

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": None}}


class Vllm(OpenAi):
    """vLLM with GLM-OCR: like OpenAI's, but it lists its models and tells of none alone: `untold` is what it says then."""

    untold = 404

    def _models(self, path: str, name: str) -> dict[str, Any]:
        wanted(path == "/v1/models", f"GET {path}", self.untold)
        return super()._models(path, name)

    def refused(self) -> dict[str, Any]:
        return self._choice("content_filter", {"role": "assistant", "content": None})

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": {"message": message, "type": "Error", "param": None, "code": status}}


class Ollama(Dialect):
    """Ollama's own `generate` and `show`."""

    def read(self, method: str, path: str, document: Any, name: str) -> Question | dict[str, Any]:
        wanted(method == "POST" and path in ("/api/generate", "/api/show"), f"{method} {path}", 404)
        wanted(isinstance(document, dict) and document.get("model") == name, "no such model", 404)
        if path == "/api/show":
            fields(document, {"model"})
            return {"details": {"family": "glmocr"}, "model_info": {}, "capabilities": ["completion", "vision"]}
        fields(document, {"model", "prompt", "images", "stream", "options"}, {"system"})
        fields(document["options"], {"num_predict"}, {"temperature"})
        wanted(document["stream"] is False and len(document["images"]) == 1, "it streams, or has not one picture")
        settings = document["options"]
        image = picture(document["images"][0])
        return Question(
            image, document["prompt"], document.get("system"), settings.get("temperature"), settings["num_predict"], name
        )

    def good(self, text: str, mistyped: bool = False) -> dict[str, Any]:
        return self._generated("stop", 7 if mistyped else text)

    def hollow(self) -> dict[str, Any]:
        return {"model": "reader", "created_at": "2026-01-01T00:00:00Z", "done": True, "done_reason": "stop"}

    def refused(self) -> dict[str, Any]:
        return self._generated("stop", "")

    def ended(self, reason: str | None, text: str) -> dict[str, Any]:
        return self._generated(reason, text)

    def cut(self, text: str) -> dict[str, Any]:
        return self.ended("length", text[:2])

    def _generated(self, reason: str | None, text: str | int) -> dict[str, Any]:
        answer = {"model": "reader", "created_at": "2026-01-01T00:00:00Z", "response": text, "done": True}
        return answer | ({} if reason is None else {"done_reason": reason})

    def error(self, status: int, message: str) -> dict[str, Any]:
        return {"error": message}


DIALECTS: dict[str, Dialect] = {"gemini": Gemini(), "openai": OpenAi(), "glm-ocr": Vllm(), "ollama": Ollama()}
