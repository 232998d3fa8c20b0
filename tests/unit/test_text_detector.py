"""Where text stands: the real detector on the project's own samples, whole and in strips."""

from functools import cache
from pathlib import Path

import pytest
from PIL import Image

from scribe_pipeline.engines import decode_upright, text_detector
from scribe_pipeline.engines.text_detector import TextDetector
from scribe_pipeline.metrics import read_ground_truth

SAMPLES = Path(__file__).parents[2] / "samples"
detector = cache(TextDetector)


@pytest.mark.parametrize("name", ["letter.jpg", "newspaper.png"])
def test_every_line_of_the_samples_is_found_once(name: str) -> None:
    picture = decode_upright((SAMPLES / name).read_bytes())
    quads = detector().find(picture)
    truth = read_ground_truth((SAMPLES / name).with_suffix(".xml"))
    middles = quads.mean(axis=1)
    for line in truth:
        left, right = min(x for x, _ in line.polygon), max(x for x, _ in line.polygon)
        top, bottom = min(y for _, y in line.polygon), max(y for _, y in line.polygon)
        inside = (middles[:, 0] > left) & (middles[:, 0] < right) & (middles[:, 1] > top) & (middles[:, 1] < bottom)
        assert inside.sum() == 1, line.text


def test_lines_at_the_edges_of_strips_are_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that goes through the network in several strips has as many lines as its parts by themselves."""
    sample = decode_upright((SAMPLES / "letter.jpg").read_bytes())
    sample = sample.resize((sample.width // 2, sample.height // 2))
    once = len(detector()._at_scale(sample, 1))
    tall = Image.new("RGB", (sample.width, 4 * sample.height), "white")
    for number in range(4):
        tall.paste(sample, (0, number * sample.height))
    monkeypatch.setattr(text_detector, "_STRIP_PIXELS", 500 * tall.width)
    assert once > 10
    assert len(detector()._at_scale(tall, 1)) == 4 * once


def test_a_page_without_text_has_no_lines() -> None:
    assert detector().find(Image.new("RGB", (300, 200), "white")).shape == (0, 4, 2)
    assert detector().find(Image.new("RGB", (1, 1), "white")).shape == (0, 4, 2)
