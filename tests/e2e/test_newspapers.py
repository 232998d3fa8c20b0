"""Pages of columns, short strips and small print in the context for newspapers, read by the real engines."""

from pathlib import Path

import pytest

from scribe_pipeline.metrics import Line, evaluate, read_ground_truth
from scribe_pipeline.pages import PageAnnotation, read_lines
from tests.commands import assert_no_worse_than_baseline, scribe_json
from tests.conftest import SHARED
from tests.proofs import size_of

# What bare Kraken is weak at comes first; for each the line recall that is asked for, where that is more than the baseline's.
PAGES = {
    "newspapers/lux-newspaper-block-1.tif": 0.85,
    "newspapers/lux-newspaper-block-0.tif": 0.9,
    "newspapers/deu-print-1815-clauren-0040.jpg": 0.95,
    "newspapers/eng-newspaper-1895-highland-3col-crop.png": 0.98,
    "newspapers/deu-catalogue-1887-zuerich-p17.png": 0.98,
    "newspapers/eng-newspaper-1905-american-eagle.jpg": 0.0,
    "newspapers/deu-newspaper-1888-pionier-p02.png": 0.0,
}
GUTTERS = "eng-newspaper-1895-highland-3col-crop"


@pytest.fixture
def newspapers() -> dict[Path, float]:
    """The real pages of this proof's size, each with the recall that is asked for."""
    if not SHARED.is_dir():
        pytest.skip(f"the real pages are in {SHARED}, which is not on this machine")
    wanted = list(PAGES.items())[: size_of("newspaper_pages")]
    return {SHARED / "pages" / name: recall for name, recall in wanted}


@pytest.mark.proof
def test_newspapers_are_read_by_columns(environment: dict[str, str], newspapers: dict[Path, float], tmp_path: Path) -> None:
    """R158, R160, R167: lines that the bare engine loses are found, in order, and none runs over a gutter."""
    pages = scribe_json(environment, "run", *newspapers, "--context", "newspaper", "--export", tmp_path)
    assert [page["status"] for page in pages] == ["completed"] * len(newspapers)
    assert_no_worse_than_baseline(tmp_path, list(newspapers))
    for scan, wanted in newspapers.items():
        lines = read_lines((tmp_path / f"{scan.stem}.json").read_text("utf-8"))
        truth = read_ground_truth(scan.with_suffix(".xml")) if scan.with_suffix(".xml").exists() else ()
        score = evaluate([Line(line.shape.polygon, line.text) for line in lines], truth)
        assert score.recall >= wanted, scan.stem
        if scan.stem == GUTTERS:
            assert over_a_gutter(lines, truth) == []


def over_a_gutter(lines: list[PageAnnotation], truth: tuple[Line, ...]) -> list[str]:
    """The texts of lines that reach over a strip, from the page's top to its bottom, in which no true line stands."""
    spans = sorted((min(x for x, _ in line.polygon), max(x for x, _ in line.polygon)) for line in truth)
    gutters, reached = [], spans[0][1]
    for left, right in spans:
        if left > reached:
            gutters.append((reached, left))
        reached = max(reached, right)
    assert len(gutters) == 2, "the page has three columns"
    boxes = [(line.text, line.shape.box) for line in lines]
    return [text for text, (x, _, width, _) in boxes for left, right in gutters if x < left and right < x + width]
