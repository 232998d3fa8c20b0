"""The administrator's registry of models, a TOML file: which engine serves each, where, with which key and within which limits.

Contexts name models by their ids. Nobody but who may write this file can name an address, a file or a key. A process reads it
once: what is changed in it is seen by the processes that begin afterwards.
"""

import functools
import hashlib
import os
import re
import tomllib
from pathlib import Path
from typing import Any, Literal

import httpx2
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, ValidationInfo, field_validator, model_validator

from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category, ScribeError

Kind = Literal["segmentor", "transcriber"]
EngineName = Literal["gemini", "openai", "glm-ocr", "ollama", "kraken"]

# Where an engine is asked unless an entry says otherwise, and which variable has its key. None: the entry has to say where.
_ENDPOINTS: dict[EngineName, str | None] = {
    "gemini": "https://generativelanguage.googleapis.com",
    "openai": "https://api.openai.com/v1",
    "glm-ocr": None,
    "ollama": "http://127.0.0.1:11434",
}
_KEY_VARIABLES: dict[EngineName, str] = {"gemini": "GEMINI_API_KEY", "openai": "OPENAI_API_KEY"}
# The segmentors that come along, whose ids are taken, and the ids that a context may name.
BUILT_IN_SEGMENTORS = ("kraken-blla", "kraken-blla-columns")
_SEGMENTOR_ID = re.compile(r"[a-z0-9][a-z0-9._:-]*")
# What a field has to look like, for who has written something else.
_WANTED = {
    "id": "has to be letters, digits and . _ : / - only, 255 at most, with a letter or a digit first",
    "name": "has to be letters, digits and signs of ASCII, without a blank",
    "sha256": "has to be what sha256sum says of the file: 64 digits of 0 to 9 and a to f",
    "endpoint": "has to be an address with http:// or https:// in front, without user, password, ? and #",
    "key_variable": "has to be the name of the variable that has the key, not the key: letters, digits and _, no digit first",
}


class Model(BaseModel):
    """One entry. Sizes are bytes, sides pixels; `name` is what the engine calls the model, its id unless it is said."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,254}$")
    kind: Kind
    engine: EngineName
    name: str = Field(default="", min_length=1, pattern=r"^[!-~]+$")
    location: Path | None = None
    sha256: str | None = Field(default=None, pattern=r"^[0-9a-f]{64}$")
    endpoint: str | None = Field(default=None, pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")
    key_variable: str | None = Field(default=None, pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    max_request_bytes: int = Field(default=8 * 1024**2, gt=0)
    max_response_bytes: int = Field(default=1024**2, gt=0)
    max_image_side: int = Field(default=4096, ge=32)
    max_output_tokens: int = Field(default=4096, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _defaults(cls, entry: Any) -> Any:
        if isinstance(entry, dict):
            engine: Any = entry.get("engine") if isinstance(entry.get("engine"), str) else None
            defaults = {"name": entry.get("id")}
            if "endpoint" not in entry:
                # a key goes to the address that it is for, and to another one only if the entry says so
                defaults |= {"endpoint": _ENDPOINTS.get(engine), "key_variable": _KEY_VARIABLES.get(engine)}
            return {name: value for name, value in defaults.items() if value is not None} | entry
        return entry

    @field_validator("endpoint")
    @classmethod
    def _usable(cls, endpoint: str | None) -> str | None:
        if endpoint is None:
            return None
        try:
            if not 0 < (httpx2.URL(endpoint).port or 1) < 2**16:
                raise ValueError
        except (httpx2.InvalidURL, UnicodeError, ValueError):
            raise ValueError("it is no address that can be asked") from None
        return endpoint

    @field_validator("location")
    @classmethod
    def _absolute(cls, location: Path | None, info: ValidationInfo) -> Path | None:
        folder: Path | None = info.context
        if location is None or folder is None:
            return location
        try:
            return folder / location.expanduser()
        except RuntimeError:
            raise ValueError("there is no such user") from None

    @model_validator(mode="after")
    def _whole(self) -> "Model":
        if self.engine == "kraken":
            if self.location is None or self.sha256 is None:
                raise ValueError("a model of kraken needs its location and the sha256 of its file")
            if self.endpoint is not None or self.key_variable is not None:
                raise ValueError("kraken reads a file: it has no endpoint and no key_variable")
        elif self.kind == "segmentor":
            raise ValueError(f"{self.engine} reads lines and finds none: its kind is transcriber")
        elif self.endpoint is None:
            raise ValueError(f"{self.engine} needs an endpoint")
        elif self.location is not None or self.sha256 is not None:
            raise ValueError(f"{self.engine} is asked at its endpoint: it has no location and no sha256")
        if self.kind == "segmentor":
            if self.id in BUILT_IN_SEGMENTORS:
                raise ValueError(f"the id {self.id} is that of a segmentor that comes along")
            if not _SEGMENTOR_ID.fullmatch(self.id):
                raise ValueError("a segmentor's id has small letters, digits and . _ : - only")
        return self

    @property
    def key(self) -> SecretStr | None:
        """The engine's key, or None if it takes none. Raises ScribeError (unavailable) that names the variable if it is not set."""
        if self.key_variable is None:
            return None
        value = os.environ.get(self.key_variable, "").strip()
        if not value:
            raise ScribeError(Category.UNAVAILABLE, f"the model {self.id} needs a key: set {self.key_variable}")
        if not (value.isascii() and value.isprintable()):
            problem = f"the key of the model {self.id}, in {self.key_variable}, has letters that no key has"
            raise ScribeError(Category.UNAVAILABLE, problem)
        return SecretStr(value)

    def file(self) -> Path:
        """Return the model's file if there is one, whatever is in it. Raises ScribeError (unavailable)."""
        assert self.location is not None
        if not os.path.isfile(self.location):  # Path's own raises for a folder that is closed to us
            raise ScribeError(Category.UNAVAILABLE, f"the file of the model {self.id}, {self.location}, is not there")
        return self.location

    def checked_file(self) -> Path:
        """Return the model's file if it is the one that was registered; reads it whole. Raises ScribeError (unavailable)."""
        path = self.file()
        try:
            with path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            problem = f"the file of the model {self.id}, {path}, cannot be read: {error.strerror}"
            raise ScribeError(Category.UNAVAILABLE, problem) from None
        if digest != self.sha256:
            problem = f"the file of the model {self.id}, {path}, is not the one registered: its SHA-256 differs"
            raise ScribeError(Category.UNAVAILABLE, problem)
        return path


@functools.cache
def registered_models() -> dict[tuple[Kind, str, str], Model]:
    """Return the entries of SCRIBE_MODELS_FILE by kind, engine and id; none without a file.

    A location is told from the folder that the file is in. Raises ScribeError (unavailable, as another worker may have a file that
    is in order) that names the file and the entry at fault.
    """
    path = Settings().models_file
    if path is None:
        return {}
    try:
        document = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise _refused(f"{path}, cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # what is nested too deep, or has numbers too long, too
        raise _refused(f"{path}, is no TOML: {error}") from None
    entries = document.get("model", [])
    if not isinstance(entries, list) or set(document) - {"model"}:
        raise _refused(f"{path}, has something else than [[model]] entries")
    models: dict[tuple[Kind, str, str], Model] = {}
    for number, entry in enumerate(entries, 1):
        try:
            model = Model.model_validate(entry, context=path.parent)
        except ValidationError as error:
            raise _refused(f"{path}, entry {number}: {_problem(error)}") from None
        if (model.kind, model.engine, model.id) in models:
            raise _refused(f"{path}: {model.id} of {model.engine} is there twice")
        models[model.kind, model.engine, model.id] = model
    return models


def _problem(error: ValidationError) -> str:
    (problem, *_) = error.errors(include_url=False, include_input=False)
    field = ".".join(map(str, problem["loc"]))
    said = {"extra_forbidden": "there is no such field", "missing": "is missing", "string_pattern_mismatch": _WANTED.get(field)}
    told = said.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
    return f"{field}: {told}" if field else told


def _refused(problem: str) -> ScribeError:
    return ScribeError(Category.UNAVAILABLE, f"SCRIBE_MODELS_FILE, {problem}")
