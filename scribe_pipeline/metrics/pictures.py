"""Pictures for those who watch: a page with its matched, missed and extra lines, measures and shares as bars. Drawing only.

Colours are of Okabe and Ito's palette, which colour-blind people tell apart; lines differ in their stroke too.
"""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from PIL import Image, ImageDraw, ImageFont
from shapely import LinearRing, segmentize

from scribe_pipeline.metrics.evaluation import Line, match_lines

Point = tuple[float, float]
Colour = tuple[int, int, int]

_GREEN, _VERMILION, _BLUE, _PURPLE = (0, 158, 115), (213, 94, 0), (0, 114, 178), (204, 121, 167)
_YELLOW, _SKY = (240, 228, 66), (86, 180, 233)
_PAPER, _INK, _GREY = (255, 255, 255), (40, 40, 40), (200, 200, 200)
_MARGIN, _SWATCH = 12, 44
_LABEL_WIDTH, _BAR_WIDTH, _BAR_HEIGHT = 280, 400, 9
_MAX_LABEL = 34


@dataclass(frozen=True)
class _Stroke:
    """How an outline is drawn: in dashes so many pixels long, or whole."""

    colour: Colour
    width: int
    dash: int | None = None


_MATCHED, _MISSED, _EXTRA = _Stroke(_GREEN, 3), _Stroke(_VERMILION, 3, dash=10), _Stroke(_BLUE, 3, dash=4)


def draw_evaluation(picture: Image.Image, found: Sequence[Line], truth: Sequence[Line], max_width: int = 1600) -> bytes:
    """Return a JPEG of the upright RGB page with a legend above it.

    Matched lines have the outline that was found in green, missed ones that of the ground truth in dashed vermilion, extra ones
    theirs in dotted blue; without ground truth all lines are extra. A thin purple path goes from line to line as they were found.
    """
    scale = min(1.0, max_width / picture.width)
    page = picture.resize((max(1, round(picture.width * scale)), max(1, round(picture.height * scale))))
    draw = ImageDraw.Draw(page)
    pairs = match_lines(found, truth)
    matched_truth, matched_found = {t for t, _ in pairs}, {f for _, f in pairs}
    for t, line in enumerate(truth):
        if t not in matched_truth:
            _outline(draw, _scaled(line, scale), _MISSED)
    for f, line in enumerate(found):
        _outline(draw, _scaled(line, scale), _MATCHED if f in matched_found else _EXTRA)
    starts = [_start(_scaled(line, scale)) for line in found if line.polygon]
    draw.line(starts, fill=_PURPLE, width=2)
    font = ImageFont.load_default(max(11, page.width // 110))
    for number, (x, y) in enumerate(starts, 1):
        draw.text((x, y), str(number), fill=_INK, font=font, anchor="lm", stroke_width=2, stroke_fill=_PAPER)
    legend = {
        f"matched {len(pairs)}": _MATCHED,
        f"missed {len(truth) - len(pairs)}": _MISSED,
        f"extra {len(found) - len(pairs)}": _EXTRA,
    }
    if not truth:
        legend = {f"found {len(found)}, no ground truth": _EXTRA}
    return _jpeg(_under_legend(page, legend))


def draw_measures(pages: Mapping[str, Mapping[str, float | None]], measures: Mapping[str, str]) -> bytes:
    """Return a PNG with a group of bars a page, from 0 to 1, and a '-' for what is not measured.

    `measures` maps names of measures to what the legend calls them.
    """
    font = ImageFont.load_default(13)
    colours = dict(zip(measures, (_GREEN, _PURPLE, _VERMILION, _BLUE), strict=False))
    step = len(measures) * _BAR_HEIGHT + _MARGIN
    chart = Image.new("RGB", (_LABEL_WIDTH + _BAR_WIDTH + 2 * _MARGIN, max(1, step * len(pages))), _PAPER)
    draw = ImageDraw.Draw(chart)
    for row, (page, values) in enumerate(pages.items()):
        draw.text((_LABEL_WIDTH - _MARGIN, row * step + step / 2), _shortened(page), fill=_INK, font=font, anchor="rm")
        for place, measure in enumerate(measures):
            top = row * step + _MARGIN / 2 + place * _BAR_HEIGHT
            value = values[measure]
            if value is None:
                draw.text((_LABEL_WIDTH + _BAR_HEIGHT, top + _BAR_HEIGHT / 2), "-", fill=colours[measure], font=font, anchor="mm")
                continue
            length = _BAR_WIDTH * min(1.0, max(0.0, value))
            draw.rectangle((_LABEL_WIDTH, top, _LABEL_WIDTH + length, top + _BAR_HEIGHT - 2), fill=colours[measure])
    draw.line([(_LABEL_WIDTH, 0), (_LABEL_WIDTH, chart.height)], fill=_INK)
    draw.line([(_LABEL_WIDTH + _BAR_WIDTH, 0), (_LABEL_WIDTH + _BAR_WIDTH, chart.height)], fill=_GREY)
    return _png(_under_legend(chart, {called: _Stroke(colours[name], 8) for name, called in measures.items()}))


def draw_shares(rows: Sequence[tuple[str, int, Sequence[int]]], parts: Sequence[str]) -> bytes:
    """Return a PNG with a bar a row, all of one length: its name, what the whole bar stands for, and how much of it each part is.

    `parts` says what the legend calls them, six at most; they stand one after the other. What is beyond the whole sticks out a
    little.
    """
    font = ImageFont.load_default(13)
    colours = (_GREEN, _VERMILION, _BLUE, _PURPLE, _YELLOW, _SKY)[: len(parts)]
    height = 2 * _BAR_HEIGHT
    step = height + _MARGIN
    chart = Image.new("RGB", (_LABEL_WIDTH + _BAR_WIDTH + 2 * _MARGIN, max(1, step * len(rows))), _PAPER)
    draw = ImageDraw.Draw(chart)
    for row, (name, whole, amounts) in enumerate(rows):
        top = row * step + _MARGIN // 2
        draw.text((_LABEL_WIDTH - _MARGIN, top + height / 2), _shortened(name), fill=_INK, font=font, anchor="rm")
        ends = [min(_BAR_WIDTH + _MARGIN, round(_BAR_WIDTH * so_far / max(1, whole))) for so_far in accumulate(amounts, initial=0)]
        for (begin, end), colour in zip(pairwise(ends), colours, strict=True):
            if end > begin:
                draw.rectangle((_LABEL_WIDTH + begin, top, _LABEL_WIDTH + end - 1, top + height), fill=colour)
        draw.rectangle((_LABEL_WIDTH, top, _LABEL_WIDTH + _BAR_WIDTH, top + height), outline=_INK)
    return _png(_under_legend(chart, {part: _Stroke(colour, 8) for part, colour in zip(parts, colours, strict=True)}))


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_LABEL else f"…{name[1 - _MAX_LABEL :]}"


def _scaled(line: Line, scale: float) -> list[Point]:
    return [(x * scale, y * scale) for x, y in line.polygon]


def _start(points: Sequence[Point]) -> Point:
    """Where a line begins: the middle of its left side."""
    ys = [y for _, y in points]
    return min(x for x, _ in points), (min(ys) + max(ys)) / 2


def _outline(draw: ImageDraw.ImageDraw, points: Sequence[Point], stroke: _Stroke) -> None:
    if len(set(points)) < 3:
        return
    if stroke.dash is None:
        draw.polygon(points, outline=stroke.colour, width=stroke.width)
    else:
        _dashes(draw, [(x, y) for x, y, *_ in segmentize(LinearRing(points), stroke.dash).coords], stroke)


def _dashes(draw: ImageDraw.ImageDraw, points: Sequence[Point], stroke: _Stroke) -> None:
    for begin in range(0, len(points) - 1, 2):
        draw.line(points[begin : begin + 2], fill=stroke.colour, width=stroke.width)


def _under_legend(page: Image.Image, legend: Mapping[str, _Stroke]) -> Image.Image:
    """Return the picture with a strip above it, as wide as it takes."""
    font = ImageFont.load_default(16)
    widths = [round(font.getlength(words)) + _SWATCH + 3 * _MARGIN for words in legend]
    height = 2 * _MARGIN + 16
    whole = Image.new("RGB", (max(page.width, sum(widths)), height + page.height), _PAPER)
    whole.paste(page, (0, height))
    draw = ImageDraw.Draw(whole)
    left = _MARGIN
    for (words, stroke), width in zip(legend.items(), widths, strict=True):
        dash = stroke.dash or _SWATCH
        _dashes(draw, [(left + x, height / 2) for x in range(0, _SWATCH + 1, dash)], stroke)
        draw.text((left + _SWATCH + _MARGIN / 2, height / 2), words, fill=_INK, font=font, anchor="lm")
        left += width
    return whole


def _jpeg(picture: Image.Image) -> bytes:
    out = io.BytesIO()
    picture.save(out, "JPEG", quality=80)
    return out.getvalue()


def _png(chart: Image.Image) -> bytes:
    """Return a chart, which has few colours, in a tenth of the bytes that a JPEG takes."""
    out = io.BytesIO()
    chart.quantize(64).save(out, "PNG", optimize=True)
    return out.getvalue()
