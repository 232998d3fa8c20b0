"""Recognition models of Kraken that an administrator registers, with tiny ones that are made here: nothing is downloaded."""

import hashlib
import shutil
from importlib import metadata, resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageFont

from scribe_pipeline.engines import LineShape, LineText, ReadingOptions, check_transcriber, registry, transcribe
from scribe_pipeline.engines.images import Pixels, pad_flat
from scribe_pipeline.engines.kraken_reader import KrakenReader
from scribe_pipeline.engines.models import Model
from scribe_pipeline.errors import Category, ScribeError
from tests.registries import file_entry, registered, registry_text, tiny_reader

OPTIONS = ReadingOptions()


def line(text: str = "A letter of 1905") -> Pixels:
    picture = Image.new("RGB", (300, 40), (230, 225, 210))
    ImageDraw.Draw(picture).text((10, 2), text, font=ImageFont.load_default(size=28), fill="black")
    return np.asarray(picture)


def reader(path: Path, **values: Any) -> KrakenReader:
    return KrakenReader(Model.model_validate(file_entry(path, **values)))


@pytest.mark.parametrize("suffix", [".mlmodel", ".safetensors"])
def test_a_registered_model_reads_a_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, suffix: str) -> None:
    """R156, R166: a file and an entry make a transcriber: text and confidence come back, the same each time."""
    path = tiny_reader(tmp_path / f"hand{suffix}")
    (tmp_path / "models.toml").write_text(registry_text(file_entry(path)))
    with registered(monkeypatch, tmp_path / "models.toml"):
        check_transcriber("kraken", "hand")
        engine = registry.transcriber("kraken", "hand", 6)
        assert engine is registry.transcriber("kraken", "hand", 20)  # nobody is waited for, so one is enough
        assert registry.transcriber_version("kraken") == f"kraken {metadata.version('kraken')}"
    assert isinstance(engine, KrakenReader) and not engine.concurrent
    text = engine.transcribe(line(), OPTIONS)
    assert text.value and set(text.value) <= set("abcdefgh")
    assert text.confidence is not None and 0 < text.confidence < 1
    assert engine.transcribe(line(), OPTIONS) == text == reader(path).transcribe(line(), OPTIONS)
    assert engine.transcribe(line("Another one entirely"), OPTIONS).confidence != text.confidence
    assert torch.get_num_threads() == 1


def shown(engine: KrakenReader, crop: Pixels) -> Pixels:
    """The picture of its one line that the model is given for a crop."""
    engine._net._inf_config.return_line_image = True
    seen: list[Pixels] = []
    predict = engine._net.predict

    def watched(**page: Any) -> list[Any]:
        records = list(predict(**page))
        seen.extend(np.asarray(record.image) for record in records)
        return records

    engine._net.predict = watched
    engine.transcribe(crop, OPTIONS)
    engine._net.predict = predict
    (picture,) = seen
    return picture


@pytest.mark.parametrize("lines", ["baselines", "bbox", None])
@pytest.mark.parametrize("height", [40, 7])
def test_a_model_sees_the_whole_crop_and_nothing_else(tmp_path: Path, lines: str | None, height: int) -> None:
    """R156: no pixel of the line is lost or moved on the way into Kraken, for whichever lines its model was trained."""
    crop = line()[-height - 10 : -10] if height < 40 else line()
    engine = reader(tiny_reader(tmp_path / "hand.safetensors", lines=lines))
    assert np.array_equal(shown(engine, crop), crop)


def test_a_model_is_given_lines_as_it_was_trained_with_them(tmp_path: Path) -> None:
    """R156: Kraken centres boxes, and leaves lines along a baseline as they are; a model that does not say is one of those."""
    crop = np.vstack([line(), np.full((30, 300, 3), (230, 225, 210), np.uint8)])
    paths = {lines: tmp_path / f"{lines}.safetensors" for lines in ("baselines", "bbox", None)}
    read = {lines: reader(tiny_reader(path, lines=lines), id="hand").transcribe(crop, OPTIONS) for lines, path in paths.items()}
    assert read["bbox"] != read["baselines"] == read[None]


def test_text_from_right_to_left_stands_in_the_order_it_is_read(tmp_path: Path) -> None:
    """R156: the model says its characters from left to right in the picture; what is first on the right comes first."""
    said = {}
    for alphabet in ("abcdefgh", "אבגדהוזח"):
        path = tiny_reader(tmp_path / f"hand-{alphabet[0]}.safetensors", alphabet)
        said[alphabet] = reader(path, id="hand").transcribe(line(), OPTIONS)
    latin, hebrew = said["abcdefgh"], said["אבגדהוזח"]
    assert len(set(latin.value)) > 1 and latin.value != latin.value[::-1]
    assert hebrew.value == latin.value[::-1].translate(str.maketrans("abcdefgh", "אבגדהוזח"))
    assert hebrew.confidence == pytest.approx(latin.confidence)


def test_a_model_for_black_and_white_gets_it(tmp_path: Path) -> None:
    """R156: one that was trained on ink without shades is shown no shades."""
    engine = reader(tiny_reader(tmp_path / "binary.safetensors", channel="1"))
    picture = shown(engine, line())
    assert picture.shape == (40, 300) and set(np.unique(picture)) == {0, 255}
    assert 0.01 < (picture == 0).mean() < 0.3


@pytest.mark.parametrize("channel", ["L", "1"])
@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (40, 300), (4, 4)])
def test_a_blank_crop_has_no_text(tmp_path: Path, size: tuple[int, int], channel: str) -> None:
    """R111: an empty line is that line's result and no failure, however small it is."""
    engine = reader(tiny_reader(tmp_path / "hand.safetensors", channel=channel))
    assert engine.transcribe(np.full((*size, 3), (230, 225, 210), np.uint8), OPTIONS).value == ""


def test_a_very_flat_crop_gets_paper_above_and_below(tmp_path: Path) -> None:
    """R111: the model scales each line to one height, and would make millions of columns of a thin one."""
    crop = np.full((10, 4000, 3), 200, np.uint8)
    crop[:, ::7] = 30
    padded = pad_flat(crop, 60)
    assert padded.shape == (67, 4000, 3)
    assert np.array_equal(padded[28:38], crop) and (padded[:28] == 200).all() and (padded[38:] == 200).all()
    assert pad_flat(padded, 60) is padded
    reader(tiny_reader(tmp_path / "hand.safetensors")).transcribe(crop, OPTIONS)


def test_another_file_is_refused_and_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R166: the look before the work is quick; the file is read through when it is loaded or probed."""
    path = tiny_reader(tmp_path / "hand.safetensors")
    (tmp_path / "models.toml").write_text(registry_text(file_entry(path)))
    path.unlink()
    tiny_reader(path, "ijklmnop")
    with registered(monkeypatch, tmp_path / "models.toml"):
        check_transcriber("kraken", "hand")
        for use in (registry.probe_transcriber, registry.transcriber):
            with pytest.raises(ScribeError, match=rf"^the file of the model hand, {path}, is not the one registered") as refused:
                use("kraken", "hand")
            assert refused.value.category is Category.UNAVAILABLE
        path.unlink()
        with pytest.raises(ScribeError, match=rf"^the file of the model hand, {path}, is not there$"):
            check_transcriber("kraken", "hand")


def test_a_page_is_read_line_by_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R156, R166: as with any other engine, a context's provider and model are all that a job says."""
    path = tiny_reader(tmp_path / "hand.safetensors")
    (tmp_path / "models.toml").write_text(registry_text(file_entry(path)))
    page = np.vstack([line(), np.full((60, 300, 3), (230, 225, 210), np.uint8), line("Another one entirely")])
    Image.fromarray(page).save(tmp_path / "page.png")
    shapes = [LineShape(((0, y + 30), (299, y + 30)), ((0, y), (299, y), (299, y + 39), (0, y + 39))) for y in (0, 50, 100)]
    with registered(monkeypatch, tmp_path / "models.toml"):
        read = transcribe(str(tmp_path), "page.png", "kraken", "hand", ReadingOptions(concurrency=6), tuple(shapes))
    first, blank, last = read.lines
    assert isinstance(first, LineText) and isinstance(last, LineText) and first != last
    assert blank is Category.NO_TEXT


@pytest.mark.parametrize("content", ["a segmentor", "noise", "nothing", "a cut model"])
def test_a_file_without_a_recogniser_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    """R166: Kraken's own words, which are many, are no part of it."""
    path = tmp_path / "hand.mlmodel"
    if content == "a segmentor":
        shutil.copy(str(resources.files("kraken") / "blla.mlmodel"), path)
    elif content == "a cut model":
        whole = tiny_reader(tmp_path / "whole.safetensors").read_bytes()
        path = path.with_suffix(".safetensors")
        path.write_bytes(whole[: len(whole) // 2])
    else:
        path.write_bytes(b"" if content == "nothing" else hashlib.sha256(b"noise").digest() * 99)
    version = metadata.version("kraken")
    with pytest.raises(ScribeError) as refused:
        reader(path)
    assert refused.value.message == f"the file of the model hand, {path}, holds no transcriber that Kraken {version} can load"
    assert refused.value.category is Category.UNAVAILABLE


def test_a_recogniser_finds_no_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """R156: nor is a recogniser taken for a segmentor."""
    path = tiny_reader(tmp_path / "hand.safetensors")
    (tmp_path / "models.toml").write_text(registry_text(file_entry(path, kind="segmentor")))
    with registered(monkeypatch, tmp_path / "models.toml"), pytest.raises(ScribeError, match="holds no segmentor that Kraken"):
        registry.segmentor("hand")
