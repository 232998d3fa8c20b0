"""The trusted registry and the local recogniser: ids resolve, unknown ones are refused, and no model is ever downloaded."""

import re
import socket
from collections.abc import Iterator
from functools import partial
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from scribe_pipeline.engines import (
    ReadingOptions,
    UnregisteredError,
    check_segmentor,
    check_transcriber,
    kraken_files,
    rapidocr_local,
    registry,
    transcriber_version,
)
from scribe_pipeline.engines.kraken_blla import KrakenBlla
from scribe_pipeline.engines.models import Model, registered_models
from scribe_pipeline.engines.rapidocr_local import RapidOcr, model_file
from scribe_pipeline.errors import Category, ScribeError
from tests.registries import file_entry, forget, registered, registry_text

MIGRATIONS = Path(__file__).parents[2] / "migrations" / "versions"
SAMPLES = Path(__file__).parents[2] / "samples"
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


@pytest.mark.parametrize("file", [False, True])
@pytest.mark.parametrize(
    ("ask", "known"),
    [
        (lambda: registry.segmentor("blla"), "kraken-blla, kraken-blla-columns"),
        (lambda: check_segmentor("../model"), "kraken-blla, kraken-blla-columns"),
        (lambda: registry.transcriber("gemini", MODEL), "local"),
        (lambda: check_transcriber("Local", MODEL), "local"),
    ],
)
def test_an_unknown_id_is_refused_with_those_there_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ask: Any, known: str, file: bool
) -> None:
    """R166: whoever has a file knows that there is no such model; without one, another worker may have it."""
    (tmp_path / "models.toml").touch()
    said = f"not in the model registry; it has: {known}{'' if file else '; there is no more without SCRIBE_MODELS_FILE'}"
    with registered(monkeypatch, tmp_path / "models.toml" if file else None), pytest.raises(UnregisteredError) as refused:
        ask()
    assert refused.value.message.endswith(said)
    assert refused.value.category is (Category.SNAPSHOT_INVALID if file else Category.UNAVAILABLE)


@pytest.fixture
def own_models(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A registry with a model of each kind; the segmentor is that of Kraken's wheel under another id."""
    blla = Path(str(resources.files("kraken") / "blla.mlmodel"))
    reader = {"id": "hand", "kind": "transcriber", "engine": "kraken", "location": "hand.mlmodel", "sha256": "0" * 64}
    asked = {"id": "gpt", "kind": "transcriber", "engine": "openai", "key_variable": "OUR_KEY"}
    entries = (file_entry(blla, "segmentor", id="our-lines"), reader, asked)
    (tmp_path / "models.toml").write_text(registry_text(*entries))
    with registered(monkeypatch, tmp_path / "models.toml"):
        yield tmp_path


@pytest.mark.usefixtures("own_models")
@pytest.mark.parametrize(
    ("ask", "known"),
    [
        (lambda: registry.segmentor("hand"), "kraken-blla, kraken-blla-columns, our-lines"),
        (lambda: check_segmentor("gpt"), "kraken-blla, kraken-blla-columns, our-lines"),
        (lambda: registry.probe_segmentor("blla"), "kraken-blla, kraken-blla-columns, our-lines"),
        (lambda: registry.transcriber("kraken", "our-lines"), "local, kraken/hand, openai/gpt"),
        (lambda: check_transcriber("openai", "hand"), "local, kraken/hand, openai/gpt"),
        (lambda: registry.probe_transcriber("gemini", "gpt"), "local, kraken/hand, openai/gpt"),
        (lambda: transcriber_version("oracle"), "local, kraken, gemini, openai, glm-ocr, ollama"),
    ],
)
def test_what_is_registered_is_known_by_engine_and_id_alone(ask: Any, known: str) -> None:
    """R166: a model that is not in the registry is refused, with those that are; a segmentor is no transcriber."""
    with pytest.raises(ScribeError, match=rf"not in the model registry; it has: {known}$") as refused:
        ask()
    assert refused.value.category is Category.SNAPSHOT_INVALID


@pytest.mark.usefixtures("offline")
def test_checks_look_and_load_nothing(own_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R166: they are made before each job, so a file's content and a provider's answer are not waited for."""
    monkeypatch.setattr(Model, "checked_file", lambda model: pytest.fail("the file was read"))
    check_segmentor("our-lines")
    with pytest.raises(ScribeError, match=r"hand\.mlmodel, is not there"):
        check_transcriber("kraken", "hand")
    (own_models / "hand.mlmodel").touch()
    check_transcriber("kraken", "hand")
    with pytest.raises(ScribeError, match="the model gpt needs a key: set OUR_KEY"):
        check_transcriber("openai", "gpt")
    monkeypatch.setenv("OUR_KEY", "k")
    check_transcriber("openai", "gpt")
    assert transcriber_version("openai") == f"openai {metadata.version('openai')}"


@pytest.mark.usefixtures("own_models", "offline")
def test_a_registered_segmentor_finds_what_its_file_finds() -> None:
    """R156, R166: with Kraken's own file under another id, the same lines; its name says which file it was."""
    page = Image.open(SAMPLES / "letter.jpg").convert("RGB")
    # what it costs goes by width to height
    picture = page.crop((page.width // 8, page.height // 4, page.width // 8 + 60, page.height // 2))
    registry.probe_segmentor("our-lines")
    own, bundled = registry.segmentor("our-lines"), registry.segmentor("kraken-blla")
    found = own.segment(picture)
    assert len(found) > 3 and found == bundled.segment(picture)
    digest = registered_models()["segmentor", "kraken", "our-lines"].sha256
    assert digest is not None and own.engine == f"kraken {metadata.version('kraken')}, our-lines {digest[:12]}"
    assert bundled.engine == f"kraken-blla {metadata.version('kraken')}"


def test_a_local_reader_is_loaded_once_whatever_the_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for nobody; contexts that differ in this alone share it."""
    monkeypatch.setattr(registry, "RapidOcr", lambda model: object())
    forget()
    assert registry.transcriber("local", MODEL, 6) is registry.transcriber("local", MODEL, 60)
    forget()


@pytest.mark.usefixtures("own_models")
def test_without_kraken_a_registered_model_is_not_there(own_models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R166: which is said before the file is looked for."""
    monkeypatch.setattr(kraken_files.util, "find_spec", lambda name: None)
    (own_models / "hand.mlmodel").touch()
    uses = (registry.segmentor, check_segmentor, partial(check_transcriber, "kraken"), partial(registry.transcriber, "kraken"))
    for use, model in zip(uses, ("our-lines", "our-lines", "hand", "hand"), strict=True):
        with pytest.raises(ScribeError, match="Kraken is not installed") as refused:
            use(model)
        assert refused.value.category is Category.UNAVAILABLE


def test_without_kraken_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kraken_files.util, "find_spec", lambda name: None)
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
        RapidOcr("named").transcribe(np.zeros((48, 100, 3), np.uint8), ReadingOptions())


@pytest.mark.usefixtures("offline")
def test_a_very_wide_line_is_no_failure() -> None:
    """R89: a line of a large scan may be 4,000 pixels wide; a thin one has no text, but fails nothing."""
    assert RapidOcr(MODEL).transcribe(np.full((10, 4000, 3), 255, np.uint8), ReadingOptions()).value == ""


@pytest.mark.usefixtures("offline")
def test_the_local_recogniser_reads_a_line_without_the_network() -> None:
    """R89: the text of a line is what the engine reads on its crop; a crop with nothing on it gives an empty text."""
    picture = Image.new("RGB", (620, 70), "white")
    ImageDraw.Draw(picture).text((20, 6), "A letter of the year 1905", font=ImageFont.load_default(size=48), fill="black")
    engine = RapidOcr(MODEL)
    text = engine.transcribe(np.asarray(picture), ReadingOptions())
    assert (text.value, text.confidence > 0.9) == ("A letter of the year 1905", True)
    assert engine.transcribe(np.full((60, 300, 3), 255, np.uint8), ReadingOptions()).value == ""
    assert transcriber_version("local") == f"rapidocr {metadata.version('rapidocr')}"
