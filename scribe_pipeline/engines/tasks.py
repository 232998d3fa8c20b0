"""The two things a worker process is asked to do with a stored scan: find its lines, and read them."""

import math
import re
import time
import unicodedata
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from itertools import islice

import numpy as np

from scribe_pipeline.engines.containers import LineShape, LineText, Reading, ReadingOptions, Segmentation
from scribe_pipeline.engines.images import crop_line, draw_lines
from scribe_pipeline.engines.pictures import decode_upright
from scribe_pipeline.engines.pool import report_progress
from scribe_pipeline.engines.registry import segmentor, transcriber
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.storage import open_store

# A segmentor makes pages smaller anyway; the largest ones, left whole, would stand beside all that its network needs.
_MOST_SEGMENTED_PIXELS = 40_000_000
# What is longer is no line, but a model that goes on and on; a page of such would be too large to be stored.
_LONGEST_LINE = 4_000
# By then a provider has refused a wrong key, while a line takes it longer.
ALONE_SECONDS = 0.5


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


def transcribe(
    store_url: str, object_key: str, provider: str, model: str, options: ReadingOptions, shapes: tuple[LineShape, ...]
) -> Reading:
    """Read each line of a stored scan from a crop of its own.

    Every line is tried once: a blank answer, what the engine calls the line's own failure, a retryable or an unknown failure is
    that line's result. Raises ScribeError at once for what would fail for every line, and between lines once the work is no longer
    wanted.
    """
    engine = transcriber(provider, model, options.timeout_s)
    started = time.monotonic()
    page = np.asarray(decode_upright(open_store(store_url).read(object_key)))

    def read(shape: LineShape) -> LineText | Category:
        try:
            text = engine.transcribe(crop_line(page, shape), options)
        except ScribeError as error:
            if not error.category.retryable:
                raise
            return error.category
        except Exception:
            # An engine may raise anything; for the page it counts as a failure that may pass.
            return Category.UNCLASSIFIED
        if isinstance(text, Category):
            return text
        value = clean_text(text.value)
        if len(value) > _LONGEST_LINE:
            return Category.RESPONSE_TOO_LARGE
        return LineText(value, text.confidence) if value else Category.NO_TEXT

    results = read_all(read, shapes, options.concurrency if engine.concurrent else 1, proven=engine.proven == options)
    return Reading(tuple(results), time.monotonic() - started)


def read_all(
    read: Callable[[LineShape], LineText | Category], shapes: Sequence[LineShape], at_once: int, *, proven: bool = False
) -> list[LineText | Category]:
    """Read lines, so many at once, and return what came of each in the order of the lines.

    The first has ALONE_SECONDS for itself unless such a reading has been `proven`: where a key is wrong, one call says so. Raises
    what `read` raises, and then begins no other line.
    """
    results: dict[int, LineText | Category] = {}
    waiting, under_way = iter(enumerate(shapes)), dict[Future[LineText | Category], int]()
    executor = ThreadPoolExecutor(at_once)
    try:
        while True:
            for number, shape in islice(waiting, (at_once if proven else 1) - len(under_way)):
                under_way[executor.submit(read, shape)] = number
            if not under_way:
                return [results[number] for number in range(len(shapes))]
            for done in wait(under_way, None if proven else ALONE_SECONDS, FIRST_COMPLETED).done:
                results[under_way.pop(done)] = done.result()
            proven = True
            failed = sum(isinstance(result, Category) for result in results.values())
            report_progress(len(results) - failed, failed)
    finally:
        # what is under way has its own time-out; nobody waits for it
        executor.shutdown(wait=False, cancel_futures=True)


def clean_text(text: str) -> str:
    """Return a line's text on one line, without control characters and lone surrogates, which no store takes."""
    spaced = re.sub(r"\s+", " ", text)
    cleaned = "".join(char for char in spaced if unicodedata.category(char) not in ("Cc", "Cs")).strip()
    # what only directs or joins letters is no text by itself
    return cleaned if any(unicodedata.category(char) not in ("Cf", "Zs") for char in cleaned) else ""
