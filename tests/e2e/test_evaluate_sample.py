"""`scribe evaluate` with the real engines, as a person runs it."""

from pathlib import Path

from PIL import Image

from scribe_pipeline.metrics import read_ground_truth
from tests.commands import scribe, scribe_json
from tests.conftest import ROOT

SAMPLE = ROOT / "samples" / "newspaper.png"


def test_a_sample_is_evaluated(environment: dict[str, str], tmp_path: Path) -> None:
    """R167: two columns are found, ordered and read as the ground truth has them; no batch or job comes of it."""
    document = scribe_json(environment, "evaluate", SAMPLE, "--pictures", tmp_path)
    assert document["segmentation"]["engine"].startswith("kraken-blla ")
    assert document["transcription"]["engine"].startswith("rapidocr ")
    (page,) = document["pages"]
    assert page["gt_lines"] == len(read_ground_truth(SAMPLE.with_suffix(".xml")))
    assert (page["recall"], page["precision"], page["order_tau"], page["adjacency"]) == (1, 1, 1, 1)
    assert page["coverage"] > 0.8
    for rate in ("cer", "cer_nfc", "page_cer"):
        assert page[rate] <= 0.01
    assert page["seconds"] > 0
    with Image.open(tmp_path / "newspaper.evaluation.jpg") as picture:
        assert picture.width == 1300
    assert scribe_json(environment, "batch", "list") == scribe_json(environment, "job", "list") == []


def test_pages_without_ground_truth_are_one_line(environment: dict[str, str], tmp_path: Path) -> None:
    """R87, R167: what is missing, and how it is called."""
    scan = tmp_path / "page.png"
    scan.write_bytes(SAMPLE.read_bytes())
    refused = scribe(environment, "evaluate", scan)
    assert (refused.returncode, refused.stdout, refused.stderr.count("\n")) == (1, "", 1), refused.stderr
    assert "put ALTO or PAGE XML with lines beside each scan" in refused.stderr
