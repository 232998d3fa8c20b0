"""The sample pages: that the script draws the committed files again, and that their ground truth is sound."""

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from lxml import etree
from PIL import Image
from shapely.geometry import LineString, Polygon

ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "samples"
XSD = ROOT.parent / "shared" / "schemas" / "pagecontent-2019-07-15.xsd"
NS = {"p": "http://schema.primaresearch.org/PAGE/gts/pagecontent/2019-07-15"}
PAGES = {"letter": "letter.jpg", "newspaper": "newspaper.png"}


@pytest.fixture(scope="module")
def redrawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("samples")
    script().draw(folder)
    return folder


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("samples_draw", SAMPLES / "draw.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as image:
        return np.asarray(image).astype(np.int16)


def points(element: etree._Element, child: str) -> list[tuple[int, int]]:
    found = element.find(f"p:{child}", NS)
    assert found is not None, f"{element.get('id')} has no {child}"
    return [(int(x), int(y)) for x, y in (point.split(",") for point in found.get("points", "").split())]


def test_newspaper_is_drawn_again_pixel_by_pixel(redrawn: Path) -> None:
    np.testing.assert_array_equal(pixels(redrawn / "newspaper.png"), pixels(SAMPLES / "newspaper.png"))


def test_letter_is_drawn_again_but_for_its_encoder(redrawn: Path) -> None:
    new, committed = pixels(redrawn / "letter.jpg"), pixels(SAMPLES / "letter.jpg")
    assert new.shape == committed.shape
    assert np.abs(new - committed).mean() < 1


@pytest.mark.parametrize("name", PAGES)
def test_ground_truth_is_written_again_byte_by_byte(redrawn: Path, name: str) -> None:
    assert (redrawn / f"{name}.xml").read_bytes() == (SAMPLES / f"{name}.xml").read_bytes()


@pytest.mark.parametrize("name", PAGES)
def test_ground_truth_is_of_this_picture_and_inside_it(name: str) -> None:
    tree = etree.parse(SAMPLES / f"{name}.xml")
    page = tree.find("p:Page", NS)
    assert page is not None
    with Image.open(SAMPLES / PAGES[name]) as image:
        width, height = image.size
    assert (page.get("imageFilename"), page.get("imageWidth"), page.get("imageHeight")) == (PAGES[name], str(width), str(height))
    for element in tree.iterfind(".//p:*[@points]", NS):
        for x, y in (map(int, point.split(",")) for point in element.get("points", "").split()):
            assert 0 <= x < width and 0 <= y < height, (element.tag, x, y)


@pytest.mark.parametrize("name", PAGES)
def test_each_line_has_text_a_baseline_and_a_polygon_in_its_region(name: str) -> None:
    tree = etree.parse(SAMPLES / f"{name}.xml")
    regions = tree.findall("p:Page/p:TextRegion", NS)
    assert [r.get("regionRef") for r in tree.iterfind(".//p:RegionRefIndexed", NS)] == [region.get("id") for region in regions]
    assert 20 < len(tree.findall(".//p:TextLine", NS)) < 50
    for region in regions:
        around = Polygon(points(region, "Coords"))
        for line in region.iterfind("p:TextLine", NS):
            polygon = Polygon(points(line, "Coords"))
            assert polygon.is_valid and around.covers(polygon), line.get("id")
            # the ends of the baseline are rounded to whole pixels, as the polygon's corners are
            assert polygon.buffer(1).covers(LineString(points(line, "Baseline"))), line.get("id")
            text = line.findtext("p:TextEquiv/p:Unicode", None, NS)
            assert text and text == " ".join(text.split()), line.get("id")


@pytest.mark.parametrize("name", PAGES)
def test_ground_truth_is_valid_page_xml(name: str) -> None:
    if not XSD.exists():
        pytest.skip(f"no PAGE schema at {XSD}")
    etree.XMLSchema(etree.parse(XSD)).assertValid(etree.parse(SAMPLES / f"{name}.xml"))
