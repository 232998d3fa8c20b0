"""Ground truth files: small hand-made ALTO and PAGE, and the real ones of ../shared."""

import csv
from pathlib import Path

import pytest
from PIL import Image

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.metrics import GroundTruthLine, read_ground_truth

SHARED = Path(__file__).parents[2].parent / "shared"

ALTO = """<alto xmlns="http://www.loc.gov/standards/alto/ns-v4#">
<Description><MeasurementUnit>{unit}</MeasurementUnit></Description>
<Layout><Page><PrintSpace><TextBlock>{lines}</TextBlock></PrintSpace></Page></Layout></alto>"""

PAGE = """<PcGts xmlns="http://schema.primaresearch.org/PAGE/gts/pagecontent/{version}">
<Page><TextRegion id="r"><Coords points="0,0 99,0 99,99"/>{lines}
<TextEquiv><Unicode>region</Unicode></TextEquiv></TextRegion></Page></PcGts>"""

BOX = 'HPOS="10" VPOS="20" WIDTH="100" HEIGHT="30"'
SQUARE = ((0.0, 0.0), (9.0, 0.0), (9.0, 5.0), (0.0, 5.0))


def read(folder: Path, text: str) -> tuple[GroundTruthLine, ...]:
    path = folder / "page.xml"
    path.write_text(text, encoding="utf-8")
    return read_ground_truth(path)


def alto(folder: Path, lines: str, unit: str = "pixel") -> tuple[GroundTruthLine, ...]:
    return read(folder, ALTO.format(unit=unit, lines=lines))


def page(folder: Path, lines: str, version: str = "2019-07-15") -> tuple[GroundTruthLine, ...]:
    return read(folder, PAGE.format(version=version, lines=lines))


def test_alto_in_pixels_prefers_the_shape_to_the_box_and_keeps_document_order(tmp_path: Path) -> None:
    lines = alto(
        tmp_path,
        f"""<TextLine {BOX} BASELINE="0,4 9,4"><Shape><Polygon POINTS="0 0 9 0 9 5 0 5"/></Shape>
        <String CONTENT="lower"/></TextLine>
        <TextLine {BOX}><Shape><Polygon POINTS="0,0 9,0 9,5 0,5"/></Shape><String CONTENT="upper"/></TextLine>""",
    )
    assert lines == (GroundTruthLine(SQUARE, "lower", ((0.0, 4.0), (9.0, 4.0))), GroundTruthLine(SQUARE, "upper"))


def test_alto_text_is_strings_with_one_space_and_the_hyphen_as_printed(tmp_path: Path) -> None:
    (line,) = alto(
        tmp_path,
        f'<TextLine {BOX}><String CONTENT="an"/><SP/><SP/><String CONTENT="Annah" SUBS_TYPE="HypPart1" SUBS_CONTENT="Annahme"/>'
        '<HYP CONTENT="-"/></TextLine>',
    )
    assert line.text == "an Annah-"


@pytest.mark.parametrize(("unit", "scale"), [("mm10", 300 / 254), ("inch1200", 0.25)])
def test_alto_in_paper_units_is_scaled_with_its_baseline(tmp_path: Path, unit: str, scale: float) -> None:
    (line,) = alto(tmp_path, f'<TextLine {BOX} BASELINE="45"><String CONTENT=""/></TextLine>', unit)
    corners = ((10 * scale, 20 * scale), (110 * scale, 20 * scale), (110 * scale, 50 * scale), (10 * scale, 50 * scale))
    baseline = ((10 * scale, 45 * scale), (110 * scale, 45 * scale))
    assert line == GroundTruthLine(corners, "", baseline, box_only=True)


SIZED = ALTO.replace("<Page>", '<Page WIDTH="{width}" HEIGHT="{height}">')


@pytest.mark.parametrize("unit", ["pixel", "mm10", "inch1200"])
def test_geometry_is_scaled_from_the_pages_size_to_the_images(tmp_path: Path, unit: str) -> None:
    """R167: whatever the unit and the scan's resolution, a line lies at the same share of the page."""
    path = tmp_path / "page.xml"
    path.write_text(SIZED.format(unit=unit, lines=f'<TextLine {BOX} BASELINE="45"/>', width=1000, height=2000))
    (line,) = read_ground_truth(path, (500, 1000))
    assert line == GroundTruthLine(((5, 10), (55, 10), (55, 25), (5, 25)), "", ((5, 22.5), (55, 22.5)), box_only=True)


def test_page_geometry_is_scaled_too(tmp_path: Path) -> None:
    """R167: PAGE made on another rendition of the scan."""
    path = tmp_path / "page.xml"
    sized = PAGE.replace("<Page>", '<Page imageWidth="300" imageHeight="200">')
    path.write_text(sized.format(version="2019-07-15", lines='<TextLine><Coords points="0,0 9,0 9,5 0,5"/></TextLine>'))
    (line,) = read_ground_truth(path, (900, 601))
    assert line.polygon[2] == pytest.approx((27, 5 * 601 / 200))
    assert not line.box_only


@pytest.mark.parametrize("size", ["", 'WIDTH="20"', 'WIDTH="0" HEIGHT="0"', 'WIDTH="inf" HEIGHT="inf"'])
def test_a_page_size_that_says_nothing_is_not_used(tmp_path: Path, size: str) -> None:
    path = tmp_path / "page.xml"
    path.write_text(ALTO.replace("<Page>", f"<Page {size}>").format(unit="mm10", lines=f"<TextLine {BOX}/>"))
    (line,) = read_ground_truth(path, (500, 1000))
    assert line.polygon[0] == pytest.approx((10 * 300 / 254, 20 * 300 / 254))


def test_the_ground_truth_of_another_picture_is_refused(tmp_path: Path) -> None:
    """R167: a page that lies on its side beside one that stands is not stretched until it fits."""
    path = tmp_path / "page.xml"
    path.write_text(SIZED.format(unit="pixel", lines="", width=1000, height=2000))
    with pytest.raises(
        ScribeError, match=r"^page\.xml is the ground truth of a page of another shape .* 2,000 x 1,000 "
    ) as refused:
        read_ground_truth(path, (2000, 1000))
    assert refused.value.category is Category.DAMAGED


ORDERED = """<PcGts><Page>{order}
<TextRegion id="left"><TextLine><Coords points="0,0 9,0 9,9"/><TextEquiv><Unicode>left</Unicode></TextEquiv></TextLine></TextRegion>
<TextRegion id="foot"><TextLine><Coords points="0,0 9,0 9,9"/><TextEquiv><Unicode>foot</Unicode></TextEquiv></TextLine></TextRegion>
<TableRegion id="table"><TextRegion id="cell"><TextLine><Coords points="0,0 9,0 9,9"/><TextEquiv><Unicode>cell</Unicode></TextEquiv>
</TextLine></TextRegion></TableRegion></Page></PcGts>"""


@pytest.mark.parametrize(
    ("order", "expected"),
    [
        ("", "left foot cell"),
        (
            """<ReadingOrder><OrderedGroup id="g"><RegionRefIndexed index="2" regionRef="foot"/><!-- a note -->
            <UnorderedGroupIndexed index="1"><RegionRef regionRef="left"/><RegionRef regionRef="table"/></UnorderedGroupIndexed>
            </OrderedGroup></ReadingOrder>""",
            "left cell foot",
        ),
        (
            '<ReadingOrder><OrderedGroup id="g"><RegionRefIndexed index="0" regionRef="foot"/></OrderedGroup></ReadingOrder>',
            "left foot cell",
        ),
    ],
    ids=["none", "nested", "not of all regions"],
)
def test_page_lines_are_in_the_files_reading_order(tmp_path: Path, order: str, expected: str) -> None:
    """R167: order is measured against what the expert said it is, where that covers the page."""
    assert " ".join(line.text for line in read(tmp_path, ORDERED.format(order=order))) == expected


@pytest.mark.parametrize("version", ["2013-07-15", "2019-07-15"])
def test_page_takes_the_lines_own_text_not_its_words(tmp_path: Path, version: str) -> None:
    lines = page(
        tmp_path,
        """<TextLine id="a"><Coords points="0,0 9,0 9,5 0,5"/><Baseline points="0,4 9,4"/>
        <Word id="w"><Coords points="0,0 4,0 4,5"/><TextEquiv><Unicode>word</Unicode></TextEquiv></Word>
        <TextEquiv><Unicode>the line</Unicode></TextEquiv></TextLine>
        <TextLine id="b"><Coords points="0,0 9,0 9,5 0,5"/>
        <Word id="v"><Coords points="0,0 4,0 4,5"/><TextEquiv><Unicode>word</Unicode></TextEquiv></Word></TextLine>
        <TextLine id="c"><Coords points="0,0 9,0 9,5 0,5"/><TextEquiv><Unicode/></TextEquiv></TextLine>""",
        version,
    )
    baseline = ((0.0, 4.0), (9.0, 4.0))
    assert lines == (GroundTruthLine(SQUARE, "the line", baseline), GroundTruthLine(SQUARE, ""), GroundTruthLine(SQUARE, ""))


def test_page_alternatives_are_taken_by_index(tmp_path: Path) -> None:
    (line,) = page(
        tmp_path,
        '<TextLine><Coords points="0,0 9,0 9,5"/><TextEquiv index="1"><Unicode>second</Unicode></TextEquiv>'
        '<TextEquiv index="0"><Unicode>first</Unicode></TextEquiv></TextLine>',
    )
    assert line.text == "first"


def test_page_of_2010_has_points_as_children(tmp_path: Path) -> None:
    points = "".join(f'<Point x="{x:.0f}" y="{y:.0f}"/>' for x, y in SQUARE)
    assert page(tmp_path, f"<TextLine><Coords>{points}</Coords></TextLine>", "2010-03-19") == (GroundTruthLine(SQUARE, ""),)


BOMB = '<!DOCTYPE alto [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]>'


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("", Category.DAMAGED),
        ("<alto><Layout>", Category.DAMAGED),
        (PAGE.format(version="2019-07-15", lines='<TextLine><Coords points="1,1 2,2"/></TextLine>'), Category.DAMAGED),
        (PAGE.format(version="2019-07-15", lines='<TextLine><Coords points="1,1 2,2 3"/></TextLine>'), Category.DAMAGED),
        (PAGE.format(version="2019-07-15", lines='<TextLine><Coords points="1,1 2,2 nan,3"/></TextLine>'), Category.DAMAGED),
        (PAGE.format(version="2019-07-15", lines="<TextLine/>"), Category.DAMAGED),
        (ALTO.format(unit="pixel", lines='<TextLine HPOS="1"/>'), Category.DAMAGED),
        (ALTO.format(unit="furlong", lines=""), Category.DAMAGED),
        ("<html/>", Category.UNSUPPORTED_TYPE),
        (BOMB + ALTO.format(unit="pixel", lines=f'<TextLine {BOX}><String CONTENT="&b;"/></TextLine>'), Category.UNSUPPORTED_TYPE),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, text: str, category: Category) -> None:
    with pytest.raises(ScribeError, match=r"^page\.xml .*\.$") as refused:
        read(tmp_path, text)
    assert refused.value.category is category


@pytest.mark.parametrize(
    "line",
    [
        '<TextLine HPOS="nan" VPOS="0" WIDTH="9" HEIGHT="9"/>',
        '<TextLine HPOS="0" VPOS="0" WIDTH="inf" HEIGHT="9"/>',
        f'<TextLine {BOX}><Shape><Polygon POINTS="0,0 100000000,0 100000000,20"/></Shape></TextLine>',
        f'<TextLine {BOX} BASELINE="0,0 1e300,0"/>',
    ],
)
def test_geometry_beyond_any_page_is_damage(tmp_path: Path, line: str) -> None:
    with pytest.raises(ScribeError, match="has a text line, unit or size that cannot be read") as refused:
        alto(tmp_path, line)
    assert refused.value.category is Category.DAMAGED


def test_a_file_that_is_not_there_is_unreadable(tmp_path: Path) -> None:
    with pytest.raises(ScribeError, match=r"^absent\.xml ") as refused:
        read_ground_truth(tmp_path / "absent.xml")
    assert refused.value.category is Category.UNREADABLE


@pytest.mark.skipif(not SHARED.exists(), reason=f"no real pages: {SHARED} is absent")
def test_real_pages_have_the_lines_of_the_baseline_table() -> None:
    pages = SHARED / "pages"
    with (pages / "BASELINE.tsv").open(encoding="utf-8", newline="") as file:
        expected = {row["page"]: int(row["gt_lines"]) for row in csv.DictReader(file, delimiter="\t") if row["gt_lines"] != "-"}
    counted = {xml.stem: read_ground_truth(xml) for xml in pages.rglob("*.xml")}
    assert {name: len(counted[name]) for name in expected} == expected
    assert all(line.text for name in expected for line in counted[name])
    assert counted["deu-newspaper-1888-pionier-p02"] == ()
    boxes = {name for name, lines in counted.items() if any(line.box_only for line in lines)}
    assert boxes == {"lux-newspaper-block-0", "lux-newspaper-block-1"}


@pytest.mark.skipif(not SHARED.exists(), reason=f"no real pages: {SHARED} is absent")
def test_real_ground_truth_lies_on_its_image() -> None:
    """R167: with the image's size known, lines are where they were without it, in paper units too, and reach over no edge."""
    for xml in (SHARED / "pages").rglob("*.xml"):
        (image,) = (path for path in xml.parent.glob(f"{xml.stem}.*") if path.suffix in (".jpg", ".png", ".tif"))
        with Image.open(image) as picture:
            width, height = picture.size
        lines = read_ground_truth(xml, (width, height))
        assert lines == read_ground_truth(xml)
        assert all(-2 <= x <= width + 2 and -2 <= y <= height + 2 for line in lines for x, y in line.polygon), xml.stem
