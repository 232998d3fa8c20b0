"""The trusted registry: which engines exist, by the ids that contexts name. A process loads each of them once.

Some come along; the others are those of the administrator's file, see `models`. What is checked without loading costs a look at the
file system at most; whether a model's file is the one registered is seen when it is loaded or probed.
"""

import functools
from typing import TYPE_CHECKING, ClassVar, Protocol

from PIL import Image

from scribe_pipeline.config import Settings
from scribe_pipeline.engines.containers import LineShape, LineText, ReadingOptions
from scribe_pipeline.engines.images import Pixels
from scribe_pipeline.engines.kraken_blla import KrakenBlla
from scribe_pipeline.engines.kraken_columns import KrakenColumns
from scribe_pipeline.engines.kraken_files import check_kraken
from scribe_pipeline.engines.kraken_reader import KrakenReader
from scribe_pipeline.engines.models import BUILT_IN_SEGMENTORS, Model, registered_models
from scribe_pipeline.engines.rapidocr_local import RapidOcr, model_file
from scribe_pipeline.errors import Category, ScribeError

if TYPE_CHECKING:
    from scribe_pipeline.engines.remote import RemoteTranscriber

_PROBE_SECONDS = 10


class UnregisteredError(ScribeError):
    """An id that the registry does not have: snapshot_invalid, or unavailable where there is no file that could have it."""


class Segmentor(Protocol):
    """Finds lines. `engine` names it and its version, `wheel_models` the models it needs of RapidOCR's wheel."""

    engine: str
    wheel_models: ClassVar[tuple[str, ...]]

    def segment(self, picture: Image.Image) -> tuple[LineShape, ...]:
        """Return the lines of an upright RGB page in reading order, in whole pixels inside the page."""


class Transcriber(Protocol):
    """Reads lines; `concurrent` if it waits for somebody else meanwhile, so that several may be read at once.

    `proven` is how it was asked when it last answered in this process, None until it does and after a permanent failure.
    """

    concurrent: ClassVar[bool]
    proven: ReadingOptions | None

    def transcribe(self, crop: Pixels, options: ReadingOptions) -> LineText | Category:
        """Read one line crop, (height, width, 3) RGB; a blank answer has an empty value.

        A Category is the failure of this line alone, whatever it is. Raises ScribeError for what is not the line's: where its
        category is not retryable, it would fail for every line.
        """


_SEGMENTORS: dict[str, type[Segmentor]] = dict(zip(BUILT_IN_SEGMENTORS, (KrakenBlla, KrakenColumns), strict=True))
_LOCAL, _KRAKEN = "local", "kraken"


@functools.cache
def segmentor(model: str) -> Segmentor:
    """Return the loaded segmentor. Raises ScribeError for an id that is not registered, or a model or a file that is not there."""
    if model in _SEGMENTORS:
        return _SEGMENTORS[model]()
    registered = _registered_segmentor(model)
    check_kraken()
    return KrakenBlla(registered)


@functools.cache
def transcriber(provider: str, model: str, timeout_s: float = 6) -> Transcriber:
    """Return the loaded transcriber, which waits so many seconds for an answer.

    Raises ScribeError for an id that is not registered, or a model, a file or a key that is not there.
    """
    if provider in (_LOCAL, _KRAKEN):
        return _reader(provider, model)
    return _remote(provider)(_registered_transcriber(provider, model), timeout_s)


@functools.cache
def _reader(provider: str, model: str) -> Transcriber:
    # one for all time-outs, as it waits for nobody
    return RapidOcr(model) if provider == _LOCAL else KrakenReader(_registered_transcriber(provider, model))


def transcriber_version(provider: str) -> str:
    """Return package and version of the transcriber, without loading it. Raises ScribeError for an id not registered."""
    if provider == _LOCAL:
        return RapidOcr.version()
    if provider == _KRAKEN:
        return KrakenReader.version()
    return _remote(provider).version()


def check_segmentor(model: str) -> None:
    """See that the segmentor could be loaded, without loading it. Raises ScribeError saying what is missing."""
    if model in _SEGMENTORS:
        check_kraken()
        for name in _SEGMENTORS[model].wheel_models:
            model_file(name)
    else:
        registered = _registered_segmentor(model)
        check_kraken()
        registered.file()


def check_transcriber(provider: str, model: str) -> None:
    """See that the transcriber could be loaded, without loading it. Raises ScribeError saying what is missing."""
    if provider == _LOCAL:
        model_file(model)
        return
    registered = _registered_transcriber(provider, model)
    if provider == _KRAKEN:
        check_kraken()
        registered.file()
    else:
        _ = registered.key


def probe_segmentor(model: str) -> None:
    """See that the segmentor could be loaded and its file is the one registered. Raises ScribeError saying what is wrong."""
    check_segmentor(model)
    if model not in _SEGMENTORS:
        _registered_segmentor(model).checked_file()


def probe_transcriber(provider: str, model: str) -> None:
    """See that the transcriber answers, or its file is the one registered, without having it read anything.

    Takes some ten seconds at most if nobody answers. Raises ScribeError saying what is wrong.
    """
    check_transcriber(provider, model)
    if provider == _LOCAL:
        return
    registered = _registered_transcriber(provider, model)
    if provider == _KRAKEN:
        registered.checked_file()
        return
    try:
        _remote(provider)(registered, _PROBE_SECONDS).probe()
    except ScribeError as error:
        if error.category is Category.AUTHENTICATION and registered.key_variable is not None:
            raise ScribeError(error.category, f"{error.message}, which is that in {registered.key_variable}") from None
        raise


def _registered_segmentor(model: str) -> Model:
    models = registered_models()
    if ("segmentor", _KRAKEN, model) not in models:
        raise _unknown(model, [*_SEGMENTORS, *(entry.id for entry in models.values() if entry.kind == "segmentor")])
    return models["segmentor", _KRAKEN, model]


def _registered_transcriber(provider: str, model: str) -> Model:
    models = registered_models()
    if ("transcriber", provider, model) not in models:
        known = (f"{entry.engine}/{entry.id}" for entry in models.values() if entry.kind == "transcriber")
        raise _unknown(f"{provider}/{model}", [_LOCAL, *known])
    return models["transcriber", provider, model]


def _remote(provider: str) -> "type[RemoteTranscriber]":
    # vendors' clients take a while to load
    from scribe_pipeline.engines import remote

    classes: dict[str, type[RemoteTranscriber]] = {
        "gemini": remote.Gemini,
        "openai": remote.OpenAi,
        "glm-ocr": remote.GlmOcr,
        "ollama": remote.Ollama,
    }
    if provider not in classes:
        raise _unknown(provider, [_LOCAL, _KRAKEN, *classes])
    return classes[provider]


def _unknown(name: str, known: list[str]) -> UnregisteredError:
    said = f"{name!r} is not in the model registry; it has: {', '.join(known)}"
    if Settings().models_file is None:
        # others may have one
        return UnregisteredError(Category.UNAVAILABLE, f"{said}; there is no more without SCRIBE_MODELS_FILE")
    return UnregisteredError(Category.SNAPSHOT_INVALID, said)
