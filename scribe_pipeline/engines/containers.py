"""What goes into engines and comes out of them. Points are (x, y) in whole pixels of the upright image."""

from collections.abc import Callable
from dataclasses import dataclass, field

from scribe_pipeline.config import Settings
from scribe_pipeline.errors import Category

Point = tuple[int, int]


@dataclass(frozen=True)
class LineShape:
    """Where a line lies: a baseline of two or more points from its start to its end, and a polygon around it."""

    baseline: tuple[Point, ...]
    polygon: tuple[Point, ...]

    @property
    def box(self) -> tuple[int, int, int, int]:
        """The polygon's bounding box as x, y, width, height; each side at least one pixel."""
        xs, ys = zip(*self.polygon, strict=True)
        return min(xs), min(ys), max(1, max(xs) - min(xs)), max(1, max(ys) - min(ys))

    def enlarged(self, factor: int) -> "LineShape":
        """The same line on a page `factor` times as large."""
        return self._changed(lambda x, y: (x * factor, y * factor))

    def moved(self, right: int, down: int) -> "LineShape":
        """The same line, so many pixels further to the right and down."""
        return self._changed(lambda x, y: (x + right, y + down))

    def _changed(self, place: Callable[[int, int], Point]) -> "LineShape":
        return LineShape(tuple(place(*point) for point in self.baseline), tuple(place(*point) for point in self.polygon))


@dataclass(frozen=True)
class LineText:
    """What was read on a line; `confidence` is 0 to 1, or None from an engine that gives none.

    Where an engine has a Category instead, that is why this line has no text, and says nothing of the others.
    """

    value: str
    confidence: float | None


@dataclass(frozen=True)
class ReadingOptions:
    """How lines are to be read, as a job's snapshot says: so many at once, and no longer than so many seconds for one."""

    temperature: float | None = None
    prompt: str | None = None
    concurrency: int = 1
    timeout_s: float = 6


@dataclass(frozen=True)
class Segmentation:
    """A page's lines in reading order, and by what, how long (seconds) and with what picture they were found."""

    lines: tuple[LineShape, ...]
    engine: str
    seconds: float
    preview: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Reading:
    """A page's lines after one attempt: for each line asked for, its text or why there is none."""

    lines: tuple[LineText | Category, ...]
    seconds: float


@dataclass(frozen=True)
class ImageFacts:
    """What the bytes of a scan say of themselves; sides in pixels of the upright image."""

    media_type: str
    extension: str
    width: int
    height: int


@dataclass(frozen=True)
class ImageLimits:
    """What is too large to be taken: bytes of the file, pixels of a page in all, pixels a side, pages of one file."""

    max_bytes: int
    max_pixels: int
    max_side: int
    max_pages: int

    @classmethod
    def of(cls, settings: Settings) -> "ImageLimits":
        """What the configuration allows."""
        return cls(settings.max_image_bytes, settings.max_image_pixels, settings.max_image_side, settings.max_image_pages)
