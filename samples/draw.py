"""Draws the two sample pages and their ground truth: letter.jpg/.xml and newspaper.png/.xml.

What belongs here: the words of the pages, how they are set, how a clean page is made to look like a scan, and the PAGE XML
that says exactly what was drawn where. What does not: anything the project itself imports; the pages are data for tests and
for trying the project out.

    python samples/draw.py [DIR]        # default: the folder of this script

The same numbers come out on every run: random numbers are seeded, text is laid out by Pillow's own basic engine (a system's
raqm would kern differently), and the arithmetic on pixels is only plus, minus, times and divide, which round alike everywhere.
"""

import math
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFilter, ImageFont

NAMESPACE = "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"
TIMESTAMP = "2026-01-01T00:00:00Z"  # fixed, so that drawing again changes no byte
SCALE = 2  # text is drawn at twice the size: after turning and shrinking, its edges are as soft as a scanner's
ASCENT, DESCENT = 0.80, 0.26  # of a line's polygon, in ems from the baseline: just clears b, p and the accents
EM_TYPED, CELL, LINE_FEED = 25, 15, 38  # 10 characters an inch at 150 dpi, one and a half lines
EM_NEWS, LEADING = 28, 41

# the letter as it is typed: a blank line divides its regions, whose ids and types follow
LETTER = """\
                       WEXCOMBE FREE LIBRARY
                      Market Place, Wexcombe

                                              14th March 1905.

Messrs. Müller & Son,
Photographers, 12 Cornhill Court.

Gentlemen,

     Our committee has lately received from the executors of the
late Mr. Josiah Penhale eleven parcels of letters, written between
1838 and 1871, together with some four hundred views of the harbour
upon glass. The parcels are sound, but the damp has reached the
lowest of them, and I should be loath to let them be handled before
a fair copy is made.

     It is my wish that every sheet be photographed once, numbered
in the order in which it was tied, and then written down by two
persons, neither of whom has seen the work of the other. Where the
two copies agree we may trust them; where they differ, a third
reader must go back to the photograph and decide.

     For the plates I am allowed £14 10s., and for the two copyists
£22 and their dinners. Would you be so good as to tell me whether
your firm could undertake the whole before Michaelmas, and whether
the plates may afterwards be kept at the library?

     The first parcel comes with this note, wrapped in oilcloth, and
with it a list of the names that occur most often. Kindly let me
have a receipt for it by return of post.

     I would ask besides that nothing be mended in the writing down.
If a word was left out in 1838, let it stay out; and if one has been
struck through, let the stroke be shown.

                                  I remain, Gentlemen,
                                  Your obedient servant,

                                  Edith Harrowgate,
                                  Librarian.

P.S. The string is old; pray tie it again as you find it.
"""
LETTER_REGIONS = {"head": "heading", "date": "other", "address": "other", "salutation": "other"}
LETTER_REGIONS |= {f"paragraph{number}": "paragraph" for number in range(1, 6)}
LETTER_REGIONS |= {"closing": "other", "signature": "other", "postscript": "other"}

HEADLINE = "Old Letters Found in a Mill"
BYLINE = "From Our Own Correspondent. Wexcombe, Saturday, 9th November 1895."
# a blank line divides its paragraphs; "|" marks where a word may be divided at the end of a line
ARTICLE = """\
A curious dis|covery was made on Thurs|day last at the old full|ing mill below the weir, where work|men tak|ing up the floor of
the count|ing house came upon three iron boxes packed to the lid with let|ters, bills and led|gers. The old|est of them bears the
date 1789, and few are later than the year of the great flood.

Mr. Thomas Quill, the pres|ent owner, had the boxes car|ried at once to the Town Hall, where the Mayor and sev|eral mem|bers of
the Read|ing Soci|ety spent the after|noon in look|ing them over. Though the paper is brown at the edges, the ink has kept its
col|our, and most of the hands can be read with|out a glass. Among the first to be opened was a note from a wool buyer of Liège,
one André Maes, who begs for forty bales of the best grey cloth and com|plains of the price of car|riage.

It is thought that the boxes were hid|den un|der the boards when the bank failed in 1826, for the last page of the led|ger shows
£312 owing to Hobbs & Co. and a line drawn through the name of the debtor. Some ninety of the mill hands are named there with
their wages, and more than one fam|ily still liv|ing in Weir Lane will find a grand|mother among them. Tied in with the wages is
a bundle of val|en|tines, which the Mayor has ordered to be sealed and kept apart.

The Soci|ety pro|poses to copy the whole into fair books, so that any reader may con|sult the words while the papers them|selves
remain under lock and key. Help|ers with a clear hand are asked to call upon the Sec|re|tary, Miss Anne Lovell, on any Tues|day
eve|ning after seven. A lan|tern lec|ture upon the find will be given in the School|room on the last day of the month;
admis|sion three|pence, chil|dren a penny. The room will be warmed, and tea may be had at the door.
"""

Point = tuple[float, float]
Pixels = NDArray[np.float64]


@dataclass
class Line:
    """One line of text as set on the straight page; x and the baseline's y in pixels of the finished page."""

    text: str
    left: float
    right: float
    baseline: float
    em: int

    def box(self) -> tuple[float, float, float, float]:
        """Left, top, right, bottom: from the font's ascenders to its descenders."""
        return self.left, self.baseline - ASCENT * self.em, self.right, self.baseline + DESCENT * self.em


@dataclass
class Region:
    """A block of lines as the ground truth names it."""

    id: str
    kind: str
    lines: list[Line] = field(default_factory=list)


@dataclass
class Sheet:
    """A page being set: its ink (0 none to 255 full, SCALE times the page's size), and what was written where."""

    size: tuple[int, int]
    angle: float  # degrees, counter-clockwise, that it lies askew on the scanner
    seed: int
    regions: list[Region] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.ink = Image.new("L", (self.size[0] * SCALE, self.size[1] * SCALE), 0)
        self.pen = ImageDraw.Draw(self.ink)

    def rule(self, left: float, top: float, right: float, bottom: float) -> None:
        """Draw a printer's rule."""
        self.pen.rectangle((left * SCALE, top * SCALE, right * SCALE - 1, bottom * SCALE - 1), fill=190)

    def turned(self, x: float, y: float) -> Point:
        """Where a point of the straight page lies on the scan: the same turn that Image.rotate makes."""
        turn, across, down = math.radians(self.angle), x - self.size[0] / 2, y - self.size[1] / 2
        return (
            self.size[0] / 2 + across * math.cos(turn) + down * math.sin(turn),
            self.size[1] / 2 - across * math.sin(turn) + down * math.cos(turn),
        )


@cache
def font(package: str, file: str, em: int) -> ImageFont.FreeTypeFont:
    """A font out of a package of fonts, which is found but not imported: only its file is wanted."""
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SystemExit(f"{package} is not installed; it is among the project's dev dependencies")
    path = Path(found.submodule_search_locations[0], "files", file)
    return ImageFont.truetype(str(path), em * SCALE, layout_engine=ImageFont.Layout.BASIC)


def serif(weight: str, em: int) -> ImageFont.FreeTypeFont:
    """The newspaper's typeface."""
    return font("font_source_serif_pro", f"SourceSerifPro-{weight}.otf", em)


def letter() -> Sheet:
    """Set the letter."""
    sheet = Sheet((1240, 1750), angle=0.6, seed=1905)
    margin, y = 122, 140
    face = font("fontpkg_ibm_plex_mono", "IBMPlexMono-Regular.ttf", EM_TYPED)
    # a worn machine strikes some types always a little high or low
    habit = dict(zip(map(chr, range(33, 127)), sheet.rng.integers(-1, 2, 94).tolist(), strict=True))
    for (name, kind), block in zip(LETTER_REGIONS.items(), LETTER.split("\n\n"), strict=True):
        region = Region(name, kind)
        for row in block.rstrip().split("\n"):
            words = row.strip()
            left = margin + (len(row) - len(words)) * CELL
            for place, character in enumerate(words):
                x = (left + (place + 0.5) * CELL) * SCALE + int(sheet.rng.integers(-1, 2))
                strength = int(sheet.rng.integers(195, 256))
                sheet.pen.text((x, y * SCALE + habit.get(character, 0)), character, strength, face, anchor="ms")
            region.lines.append(Line(words, left, left + len(words) * CELL, y, EM_TYPED))
            y += LINE_FEED
        sheet.regions.append(region)
        y += 12 if kind == "paragraph" else 26
    return sheet


def broken(paragraph: str, face: ImageFont.FreeTypeFont, width: float, indent: float) -> list[str]:
    """The paragraph's lines, each filled as far as it goes, dividing a word only at its "|" marks."""
    rows: list[str] = []
    row = ""
    for word in paragraph.split():
        room, parts, before = width - (0 if rows else indent), word.split("|"), f"{row} " if row else ""
        # what the row would be with the whole word, with ever less of it, and at last without it
        tries = ["".join([before, *parts[:n], "-" * (n < len(parts))]) for n in range(len(parts), 0, -1)]
        taken = next((n for n, attempt in enumerate(tries) if face.getlength(attempt) <= room), len(parts))
        if taken:
            rows.append(tries[taken] if taken < len(parts) else row)
            row = "".join(parts[len(parts) - taken :])
        else:
            row = tries[0]
    return [*rows, row]


def set_line(sheet: Sheet, text: str, face: ImageFont.FreeTypeFont, em: int, left: float, y: float, width: float = 0) -> Line:
    """Sets one line, its words spread over `width` where that is given."""
    words = text.split()
    lengths = [face.getlength(word) for word in words]
    gap = (width * SCALE - sum(lengths)) / max(len(words) - 1, 1) if width else face.getlength(" ")
    x = left * SCALE
    for word, length in zip(words, lengths, strict=True):
        sheet.pen.text((x, y * SCALE), word, int(sheet.rng.integers(215, 256)), face, anchor="ls")
        x += length + gap
    return Line(text, left, (x - gap) / SCALE, y, em)


def newspaper() -> Sheet:
    """Set the newspaper article."""
    sheet = Sheet((1300, 1376), angle=-0.7, seed=1895)
    margin, gutter = 92, 64
    width = (sheet.size[0] - 2 * margin - gutter) / 2
    sheet.rule(margin, 84, sheet.size[0] - margin, 88)
    for name, text, face, em, y in (
        ("headline", HEADLINE, serif("Bold", 78), 78, 178),
        ("byline", BYLINE, serif("It", 30), 30, 244),
    ):
        left = (sheet.size[0] - face.getlength(text) / SCALE) / 2
        sheet.regions.append(Region(name, "heading" if name == "headline" else "other", [set_line(sheet, text, face, em, left, y)]))
    sheet.rule(margin, 280, sheet.size[0] - margin, 282)

    face, indent = serif("Regular", EM_NEWS), 28
    rows: list[tuple[str, float, bool]] = []  # a line, how far it is indented, whether it is filled out
    for paragraph in ARTICLE.split("\n\n"):
        lines = broken(paragraph, face, width * SCALE, indent * SCALE)
        rows += [(line, 0 if at else indent, at < len(lines) - 1) for at, line in enumerate(lines)]
    half = (len(rows) + 1) // 2
    for number, column in enumerate((rows[:half], rows[half:])):
        region, left = Region(f"column{number + 1}", "paragraph"), margin + number * (width + gutter)
        for at, (text, shift, filled) in enumerate(column):
            y = 336 + at * LEADING
            region.lines.append(set_line(sheet, text, face, EM_NEWS, left + shift, y, (width - shift) if filled else 0))
        sheet.regions.append(region)
    sheet.rule(sheet.size[0] / 2 - 0.5, 306, sheet.size[0] / 2 + 0.5, 336 + half * LEADING - 26)
    return sheet


def mottle(rng: np.random.Generator, size: tuple[int, int], grain: int) -> Pixels:
    """Soft random blotches of about `grain` pixels, from 0 to 1."""
    small = rng.integers(0, 256, (size[1] // grain + 2, size[0] // grain + 2), dtype=np.uint8)
    return np.asarray(Image.fromarray(small).resize(size, Image.Resampling.BICUBIC), dtype=np.float64) / 255


def scan(sheet: Sheet, paper: tuple[int, ...], black: tuple[int, ...], folds: tuple[float, ...], noise: int) -> Image.Image:
    """What a scanner makes of the sheet: inked unevenly, a little askew, lit unevenly, grainy; one channel for each tone."""
    rng, (width, height) = sheet.rng, sheet.size
    turned = sheet.ink.rotate(sheet.angle, Image.Resampling.BICUBIC).reduce(SCALE).filter(ImageFilter.GaussianBlur(0.6))
    evenness = 0.78 + 0.2 * mottle(rng, sheet.size, 90) + 0.14 * mottle(rng, sheet.size, 3)
    ink = np.asarray(turned, dtype=np.float64) / 255 * evenness
    # print of the other side, mirrored, that shows faintly through the paper
    back = turned.transpose(Image.Transpose.FLIP_LEFT_RIGHT).filter(ImageFilter.GaussianBlur(4))
    across, down = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    light = 1 - 0.045 * across - 0.05 * down * down - 0.05 * across * across * across * across
    light += 0.045 * (mottle(rng, sheet.size, 260) - 0.5) + 0.022 * (mottle(rng, sheet.size, 24) - 0.5)
    light -= 0.05 * np.asarray(back, dtype=np.float64) / 255
    for fold in folds:
        away = np.abs(down - fold - 0.012 * across) * height / 2  # pixels from the crease, which is not quite straight
        light -= 0.10 * np.clip(1 - away / 3, 0, 1) + 0.03 * np.clip(1 - away / 40, 0, 1)
    # where the sheet ends short of the glass, askew as it lies, the lid behind it is in shadow
    light *= 1 - 0.6 * np.clip((across - math.radians(sheet.angle) * down - 0.978) * width / 6, 0, 1)
    dust = Image.fromarray(np.where(rng.integers(0, 16000, (height, width)) == 0, np.uint8(255), np.uint8(0)))
    dust = dust.filter(ImageFilter.GaussianBlur(0.8))
    cover = np.clip(np.maximum(ink, np.asarray(dust, dtype=np.float64) / 160), 0, 1)
    grain = rng.integers(-noise, noise + 1, (height, width)) + rng.integers(-noise, noise + 1, (height, width))
    layers = [np.clip(tone * light * (1 - cover) + dark * cover + grain, 0, 255) for tone, dark in zip(paper, black, strict=True)]
    return Image.merge("RGB" if len(paper) == 3 else "L", [Image.fromarray((layer + 0.5).astype(np.uint8)) for layer in layers])


def truth(sheet: Sheet, image: str) -> bytes:
    """The PAGE XML of the sheet, with the places that its lines have on the scan."""

    def points(*corners: Point) -> str:
        return " ".join(f"{round(x)},{round(y)}" for x, y in (sheet.turned(*corner) for corner in corners))

    def outline(parent: ET.Element, left: float, top: float, right: float, bottom: float) -> None:
        ET.SubElement(parent, "Coords", points=points((left, top), (right, top), (right, bottom), (left, bottom)))

    root = ET.Element("PcGts", xmlns=NAMESPACE)
    metadata = ET.SubElement(root, "Metadata")
    for tag, value in (("Creator", "samples/draw.py"), ("Created", TIMESTAMP), ("LastChange", TIMESTAMP)):
        ET.SubElement(metadata, tag).text = value
    page = ET.SubElement(root, "Page", imageFilename=image, imageWidth=str(sheet.size[0]), imageHeight=str(sheet.size[1]))
    order = ET.SubElement(ET.SubElement(page, "ReadingOrder"), "OrderedGroup", id="order")
    for index, region in enumerate(sheet.regions):
        ET.SubElement(order, "RegionRefIndexed", index=str(index), regionRef=region.id)
        block = ET.SubElement(page, "TextRegion", id=region.id, type=region.kind)
        lefts, tops, rights, bottoms = zip(*(line.box() for line in region.lines), strict=True)
        outline(block, min(lefts) - 6, min(tops) - 4, max(rights) + 6, max(bottoms) + 4)
        for number, line in enumerate(region.lines, 1):
            element = ET.SubElement(block, "TextLine", id=f"{region.id}-l{number}")
            outline(element, *line.box())
            ET.SubElement(element, "Baseline", points=points((line.left, line.baseline), (line.right, line.baseline)))
            ET.SubElement(ET.SubElement(element, "TextEquiv"), "Unicode").text = line.text
    ET.indent(root)
    text: bytes = ET.tostring(root, encoding="UTF-8", xml_declaration=True)
    return text + b"\n"


def draw(folder: Path) -> None:
    """Draw both pages and write their ground truth."""
    folder.mkdir(parents=True, exist_ok=True)
    sheet = letter()
    page = scan(sheet, paper=(238, 230, 210), black=(44, 42, 58), folds=(-0.36, 0.31), noise=2)
    page.save(folder / "letter.jpg", quality=72, dpi=(150, 150))
    (folder / "letter.xml").write_bytes(truth(sheet, "letter.jpg"))
    sheet = newspaper()
    page = scan(sheet, paper=(216,), black=(40,), folds=(), noise=1)
    page.save(folder / "newspaper.png", optimize=True, dpi=(150, 150))
    (folder / "newspaper.xml").write_bytes(truth(sheet, "newspaper.png"))


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
