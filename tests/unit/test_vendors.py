"""The vendors themselves, where their keys are in the environment: what stands in for them takes and refuses what they do."""

import os

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from scribe_pipeline.engines import LineText, ReadingOptions
from scribe_pipeline.engines.models import Model
from scribe_pipeline.errors import Category, ScribeError
from tests.providers import KEY
from tests.unit.test_remote import CLIENTS, CROP, OPTIONS, PATIENT

SERVICES = {"gemini": ("GEMINI_API_KEY", "gemini-2.5-flash"), "openai": ("OPENAI_API_KEY", "gpt-4o-mini")}


@pytest.fixture(params=SERVICES)
def service(request: pytest.FixtureRequest) -> Model:
    """The vendor itself, where its key is there."""
    variable, name = SERVICES[request.param]
    if not os.environ.get(variable):
        pytest.skip(f"{variable} is not set")
    return Model(id=name, kind="transcriber", engine=request.param)


def test_the_vendor_itself_reads_a_line(service: Model) -> None:
    """R161: what its stand-in takes, it takes too."""
    picture = Image.new("RGB", (620, 70), "white")
    ImageDraw.Draw(picture).text((20, 6), "A letter of the year 1905", font=ImageFont.load_default(size=48), fill="black")
    engine = CLIENTS[service.engine](service, PATIENT)
    engine.probe()
    read = engine.transcribe(np.asarray(picture), ReadingOptions(temperature=0))
    assert isinstance(read, LineText) and read.value.strip() == "A letter of the year 1905"


def test_the_vendor_itself_refuses_a_wrong_key(service: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """R19: as its stand-in does."""
    assert service.key_variable is not None
    monkeypatch.setenv(service.key_variable, KEY)
    with pytest.raises(ScribeError) as caught:
        CLIENTS[service.engine](service, PATIENT).transcribe(CROP, OPTIONS)
    assert caught.value.category is Category.AUTHENTICATION
