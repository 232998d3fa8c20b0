"""Engines that answer at once, for tests of what is done with their answers."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from PIL import Image as Picture

from scribe_pipeline.engines import LineShape, LineText
from scribe_pipeline.engines.images import Pixels
from tests.houses import line_shape


@dataclass
class FakeEngines:
    """What the engines of a test say: the lines of every page, and for each crop a text or an error to raise."""

    lines: tuple[LineShape, ...] = (line_shape(20), line_shape(70), line_shape(120))
    answer: Callable[[int], str | Exception] = lambda number: f"line {number}"
    segmented: int = 0
    crops: list[Pixels] = field(default_factory=list)
    engine: str = "fake 1.0"

    def segment(self, picture: Picture.Image) -> tuple[LineShape, ...]:
        """Stand in for a segmentor."""
        self.segmented += 1
        return self.lines

    def transcribe(self, crop: Pixels) -> LineText:
        """Stand in for a transcriber."""
        self.crops.append(crop)
        said = self.answer(len(self.crops))
        if isinstance(said, Exception):
            raise said
        return LineText(said, 0.5)


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> FakeEngines:
    """Fake engines in place of the registered ones."""
    fake = FakeEngines()
    monkeypatch.setattr("scribe_pipeline.engines.tasks.segmentor", lambda model: fake)
    monkeypatch.setattr("scribe_pipeline.engines.tasks.transcriber", lambda provider, model: fake)
    return fake
