"""The trusted registry: which engines exist, by the ids that contexts name. A process loads each of them once."""

import functools
from importlib import util
from typing import ClassVar, Protocol, TypeVar

from PIL import Image

from scribe_pipeline.engines.containers import LineShape
from scribe_pipeline.engines.kraken_blla import KrakenBlla
from scribe_pipeline.engines.kraken_columns import KrakenColumns
from scribe_pipeline.engines.rapidocr_local import RapidOcr, model_file
from scribe_pipeline.errors import Category, ScribeError

Adapter = TypeVar("Adapter")


class Segmentor(Protocol):
    """Finds lines. `engine` names it and its version, `wheel_models` the models it needs of RapidOCR's wheel."""

    engine: str
    wheel_models: ClassVar[tuple[str, ...]]

    def segment(self, picture: Image.Image) -> tuple[LineShape, ...]:
        """Return the lines of an upright RGB page in reading order, in whole pixels inside the page."""


_SEGMENTORS: dict[str, type[Segmentor]] = {"kraken-blla": KrakenBlla, "kraken-blla-columns": KrakenColumns}
_TRANSCRIBERS = {"local": RapidOcr}


@functools.cache
def segmentor(model: str) -> Segmentor:
    """Return the loaded segmentor. Raises ScribeError for an id that is not registered."""
    return _entry(_SEGMENTORS, model)()


@functools.cache
def transcriber(provider: str, model: str) -> RapidOcr:
    """Return the loaded transcriber. Raises ScribeError for an id that is not registered or a model that is not there."""
    return _entry(_TRANSCRIBERS, provider)(model)


def transcriber_version(provider: str) -> str:
    """Return package and version of the transcriber, without loading it. Raises ScribeError for an id not registered."""
    return _entry(_TRANSCRIBERS, provider).version()


def check_segmentor(model: str) -> None:
    """See that the segmentor could be loaded, without loading it. Raises ScribeError saying what to install."""
    needed = _entry(_SEGMENTORS, model).wheel_models
    if util.find_spec("kraken") is None:
        raise ScribeError(Category.UNAVAILABLE, "Kraken is not installed: pip install 'scribe-pipeline[kraken]'")
    for name in needed:
        model_file(name)


def check_transcriber(provider: str, model: str) -> None:
    """See that the transcriber could be loaded, without loading it. Raises ScribeError saying what is missing."""
    _entry(_TRANSCRIBERS, provider)
    model_file(model)


def _entry(known: dict[str, Adapter], name: str) -> Adapter:
    if name not in known:
        raise ScribeError(Category.SNAPSHOT_INVALID, f"{name!r} is not in the model registry; it has: {', '.join(known)}")
    return known[name]
