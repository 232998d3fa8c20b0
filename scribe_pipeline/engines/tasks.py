"""The two things a worker process is asked to do with a stored scan: find its lines, and read them."""

import math
import re
import time
import unicodedata

import numpy as np

from scribe_pipeline.engines.containers import LineShape, LineText, Reading, Segmentation
from scribe_pipeline.engines.images import crop_line, draw_lines
from scribe_pipeline.engines.pictures import decode_upright
from scribe_pipeline.engines.pool import report_progress
from scribe_pipeline.engines.registry import segmentor, transcriber
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage import open_store

# A segmentor makes pages smaller anyway; the largest ones, left whole, would stand beside all that its network needs.
_MOST_SEGMENTED_PIXELS = 40_000_000


def segment(store_url: str, object_key: str, model: str, with_preview: bool) -> Segmentation:
    """Find the lines of a stored scan. Raises ScribeError."""
    engine = segmentor(model)
    started = time.monotonic()
    picture = decode_upright(open_store(store_url).read(object_key))
    factor = math.ceil(math.sqrt(picture.width * picture.height / _MOST_SEGMENTED_PIXELS))
    if factor > 1:
        picture = picture.reduce(factor)
    lines = engine.segment(picture)
    preview = draw_lines(picture, lines) if with_preview else None
    return Segmentation(tuple(line.enlarged(factor) for line in lines), engine.engine, time.monotonic() - started, preview)


def transcribe(store_url: str, object_key: str, provider: str, model: str, shapes: tuple[LineShape, ...]) -> Reading:
    """Read each line of a stored scan from a crop of its own.

    Every line is tried: a blank answer, a retryable or an unknown failure is that line's result. Raises ScribeError at once
    for what would fail for every line, and between lines once the work is no longer wanted.
    """
    engine = transcriber(provider, model)
    started = time.monotonic()
    page = np.asarray(decode_upright(open_store(store_url).read(object_key)))
    results: list[LineText | Category] = []
    failed = 0
    for shape in shapes:
        try:
            text = engine.transcribe(crop_line(page, shape))
            value = clean_text(text.value)
            results.append(LineText(value, text.confidence) if value else Category.NO_TEXT)
        except ScribeError as error:
            if not error.category.retryable:
                raise
            results.append(error.category)
        except Exception:
            # An engine may raise anything; for the page it counts as a failure that may pass.
            results.append(Category.UNCLASSIFIED)
        failed += isinstance(results[-1], Category)
        report_progress(len(results) - failed, failed)
    return Reading(tuple(results), time.monotonic() - started)


def clean_text(text: str) -> str:
    """Return a line's text on one line, without control characters and lone surrogates, which no store takes."""
    spaced = re.sub(r"\s+", " ", text)
    return "".join(char for char in spaced if unicodedata.category(char) not in ("Cc", "Cs")).strip()
