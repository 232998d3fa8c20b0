"""The trusted registry and the local recogniser: ids resolve, unknown ones are refused, and no model is ever downloaded."""

import re
import socket
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from scribe_pipeline.engines import check_segmentor, check_transcriber, rapidocr_local, registry, transcriber_version
from scribe_pipeline.engines.kraken_blla import KrakenBlla
from scribe_pipeline.engines.rapidocr_local import RapidOcr, model_file
from scribe_pipeline.errors import Category, ScribeError

MIGRATIONS = Path(__file__).parents[2] / "migrations" / "versions"
MODEL = "PP-OCRv6_rec_small"
_PRESET = re.compile(r"'(letter|manuscript|newspaper)', '[^']*', \w+,\s+'([^']+)', '([^']+)', '([^']+)'")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """No name is resolved and no connection made."""

    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError(f"the network was used: {arguments}")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def light_kraken(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Kraken's adapter without its model."""
    monkeypatch.setattr(KrakenBlla, "__init__", lambda self: None)
    registry.segmentor.cache_clear()
    yield
    registry.segmentor.cache_clear()


def presets() -> dict[str, tuple[str, str, str]]:
    """What the migrations give each preset: segmentation model, provider, model."""
    text = "".join(path.read_text() for path in sorted(MIGRATIONS.glob("*.sql")))
    return {name: (segmentation, provider, model) for name, segmentation, provider, model in _PRESET.findall(text)}


@pytest.mark.usefixtures("light_kraken")
@pytest.mark.parametrize("name", ["letter", "manuscript", "newspaper"])
def test_presets_begin_with_kraken_lines(name: str) -> None:
    """R157: a built-in preset's segmentation model id resolves to the Kraken BLLA adapter, loaded once a process."""
    model = presets()[name][0]
    assert isinstance(registry.segmentor(model), KrakenBlla)
    assert registry.segmentor(model) is registry.segmentor(model)
    check_segmentor(model)


@pytest.mark.parametrize("name", ["letter", "manuscript", "newspaper"])
def test_presets_name_a_transcriber_that_is_there(name: str) -> None:
    """R157: the rest of the preset resolves too."""
    check_transcriber(*presets()[name][1:])


@pytest.mark.parametrize(
    ("ask", "known"),
    [
        (lambda: registry.segmentor("blla"), "kraken-blla, kraken-blla-columns"),
        (lambda: check_segmentor("../model"), "kraken-blla, kraken-blla-columns"),
        (lambda: registry.transcriber("gemini", MODEL), "local"),
        (lambda: check_transcriber("Local", MODEL), "local"),
    ],
)
def test_an_unknown_id_is_refused_with_those_there_are(ask: Any, known: str) -> None:
    with pytest.raises(ScribeError, match=rf"not in the model registry; it has: {known}$") as refused:
        ask()
    assert refused.value.category is Category.SNAPSHOT_INVALID


def test_without_kraken_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry.util, "find_spec", lambda name: None)
    with pytest.raises(ScribeError, match=r"pip install 'scribe-pipeline\[kraken\]'") as refused:
        check_segmentor("kraken-blla")
    assert refused.value.category is Category.UNAVAILABLE


def test_without_its_detector_the_segmentor_of_columns_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rapidocr_local.Path, "is_file", lambda path: "_det_" not in path.name)
    check_segmentor("kraken-blla")
    with pytest.raises(ScribeError, match="PP-OCRv6_det_small is not in the installed rapidocr") as refused:
        check_segmentor("kraken-blla-columns")
    assert refused.value.category is Category.UNAVAILABLE


def test_the_models_file_is_part_of_the_wheel() -> None:
    """It was installed, not fetched afterwards."""
    shipped = {Path(str(file.locate())).resolve() for file in metadata.files("rapidocr") or ()}
    assert model_file(MODEL).resolve() in shipped


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize("ask", [model_file, RapidOcr, lambda model: check_transcriber("local", model)])
def test_a_missing_model_is_named_and_not_downloaded(ask: Any) -> None:
    before = sorted(model_file(MODEL).parent.iterdir())
    with pytest.raises(ScribeError, match=r"^the model PP-OCRv4_rec is not in the installed rapidocr") as refused:
        ask("PP-OCRv4_rec")
    assert refused.value.category is Category.UNAVAILABLE
    assert sorted(model_file(MODEL).parent.iterdir()) == before


@pytest.mark.usefixtures("offline")
def test_the_model_that_is_named_is_the_one_that_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R89: not whichever the library would take."""
    (tmp_path / "named.onnx").write_bytes(b"no model")
    monkeypatch.setattr(rapidocr_local, "model_file", lambda model: tmp_path / f"{model}.onnx")
    with pytest.raises(Exception, match="named"):
        RapidOcr("named").transcribe(np.zeros((48, 100, 3), np.uint8))


@pytest.mark.usefixtures("offline")
def test_a_very_wide_line_is_no_failure() -> None:
    """R89: a line of a large scan may be 4,000 pixels wide; a thin one has no text, but fails nothing."""
    assert RapidOcr(MODEL).transcribe(np.full((10, 4000, 3), 255, np.uint8)).value == ""


@pytest.mark.usefixtures("offline")
def test_the_local_recogniser_reads_a_line_without_the_network() -> None:
    """R89: the text of a line is what the engine reads on its crop; a crop with nothing on it gives an empty text."""
    picture = Image.new("RGB", (620, 70), "white")
    ImageDraw.Draw(picture).text((20, 6), "A letter of the year 1905", font=ImageFont.load_default(size=48), fill="black")
    engine = RapidOcr(MODEL)
    text = engine.transcribe(np.asarray(picture))
    assert (text.value, text.confidence > 0.9) == ("A letter of the year 1905", True)
    assert engine.transcribe(np.full((60, 300, 3), 255, np.uint8)).value == ""
    assert transcriber_version("local") == f"rapidocr {metadata.version('rapidocr')}"
