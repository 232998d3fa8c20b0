"""How well exported pages agree with their ground truth, as a table, and whether they fell behind a baseline.

    python benchmarks/accuracy.py EXPORT_DIR PAGES... [--baseline BASELINE.tsv]

EXPORT_DIR holds NAME.json, the AnnotationPage of each page; PAGES are images, or folders of them, with the ground truth (ALTO or
PAGE, NAME.xml) beside the image. The table goes to stdout, all else to stderr. Exit code 1 if a page with ground truth has no
export or a score fell behind. The measures belong to `scribe_pipeline.metrics`; here are only the export's reader and the limits.
"""

import argparse
import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from scribe_pipeline.metrics import GroundTruthLine, Line, PageScore, evaluate, read_ground_truth

IMAGE_SUFFIXES = {".jpg", ".jpeg", ".png", ".tif", ".tiff", ".jp2", ".webp"}
RECALL_LOSS = ORDER_LOSS = 0.02
GOOD_CER = 0.03  # up to here an error more is seen; above it a recogniser's mood moves the rate by points
CER_GAIN_GOOD, CER_GAIN_POOR = 0.005, 0.05


def exported_lines(export: Path) -> list[Line]:
    """The annotations of granularity `line`, in the order of the page; without an SVG polygon the xywh box is the outline."""
    page = json.loads(export.read_text(encoding="utf-8"))
    lines = (item for item in page["items"] if item.get("textGranularity") == "line")
    return [Line(_outline(line["target"]), line.get("body", {}).get("value", "")) for line in lines]


def _outline(target: str | dict[str, Any]) -> tuple[tuple[float, float], ...]:
    selectors = [{"value": target}] if isinstance(target, str) else target["selector"]
    values = [selector["value"] for selector in (selectors if isinstance(selectors, list) else [selectors])]
    for value in values:
        if polygon := re.search(r"<polygon\b[^>]*?\bpoints=[\"']([^\"']*)", value):
            numbers = [float(number) for number in re.split(r"[\s,]+", polygon[1].strip())]
            return tuple(zip(numbers[::2], numbers[1::2], strict=True))
    box = re.search(r"xywh=(?:pixel:)?([\d.,]+)", " ".join(values))
    if box is None:
        raise ValueError(f"a line has neither a polygon nor a box: {target}")
    x, y, w, h = map(float, box[1].split(","))
    return (x, y), (x + w, y), (x + w, y + h), (x, y + h)


def page_images(pages: Iterable[Path]) -> list[Path]:
    """The images named, and those in the folders named and below; each once, sorted."""
    inside = (path.rglob("*") if path.is_dir() else [path] for path in pages)
    return sorted({path for paths in inside for path in paths if path.suffix.lower() in IMAGE_SUFFIXES})


def ground_truth(image: Path) -> tuple[GroundTruthLine, ...]:
    """The lines of the file beside the image; () if there is no such file or it has no lines."""
    xml = image.with_suffix(".xml")
    return read_ground_truth(xml) if xml.exists() else ()


def row(name: str, score: PageScore) -> str:
    """One line of the table, in the columns of BASELINE.tsv, so that the table can serve as one."""
    tau = "-" if score.order_tau is None else f"{score.order_tau:.3f}"
    cer = "-" if score.cer is None else f"{score.cer:.4f}"
    return f"{name}\t{score.gt_lines}\t{score.found_lines}\t{score.recall:.3f}\t{score.precision:.3f}\t{tau}\t{cer}"


def regressions(score: PageScore, baseline: dict[str, str]) -> Iterator[str]:
    """What is worse than the baseline's row allows; its values are rounded, and '-' where there is none."""
    if baseline["recall"] != "-" and round(float(baseline["recall"]) - score.recall, 6) > RECALL_LOSS:
        yield f"recall {score.recall:.3f}, baseline {baseline['recall']} less {RECALL_LOSS}"
    order = score.order_tau if baseline["order_tau"] != "-" else None
    if order is not None and round(float(baseline["order_tau"]) - order, 6) > ORDER_LOSS:
        yield f"order {order:.3f}, baseline {baseline['order_tau']} less {ORDER_LOSS}"
    if baseline["cer"] == "-":
        return
    allowed = CER_GAIN_GOOD if float(baseline["cer"]) <= GOOD_CER else CER_GAIN_POOR
    if score.cer is None:
        yield f"no line to compare text on, baseline cer {baseline['cer']}"
    elif round(score.cer - float(baseline["cer"]), 6) > allowed:
        yield f"cer {score.cer:.4f}, baseline {baseline['cer']} plus {allowed}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table and what failed; 0 if nothing did, else 1."""
    parser = argparse.ArgumentParser(description="Score exported AnnotationPages against ground truth.")
    parser.add_argument("exports", type=Path, metavar="EXPORT_DIR", help="folder of NAME.json, one AnnotationPage a page")
    parser.add_argument("pages", type=Path, nargs="+", metavar="PAGES", help="images or folders, ground truth beside each image")
    parser.add_argument("--baseline", type=Path, help="table of an earlier run; falling behind it fails")
    options = parser.parse_args(arguments)
    missing = [path for path in (options.exports, *options.pages, options.baseline) if path is not None and not path.exists()]
    if missing:
        parser.error(f"{missing[0]} does not exist")
    if not (images := page_images(options.pages)):
        parser.error("no images there")
    baseline: dict[str, dict[str, str]] = {}
    if options.baseline is not None:
        with options.baseline.open(encoding="utf-8", newline="") as file:
            baseline = {entry["page"]: entry for entry in csv.DictReader(file, delimiter="\t")}

    failures, notes = [], []
    print("page\tgt_lines\tfound\trecall\tprecision\torder_tau\tcer")
    for image in images:
        export = options.exports / f"{image.stem}.json"
        if not (truth := ground_truth(image)):
            notes.append(f"{image.stem}: no ground truth")
        elif not export.exists():
            failures.append(f"{image.stem}: no export")
        else:
            score = evaluate(exported_lines(export), truth)
            print(row(image.stem, score))
            if image.stem in baseline:
                failures += [f"{image.stem}: {failure}" for failure in regressions(score, baseline[image.stem])]
            elif baseline:
                notes.append(f"{image.stem}: not in the baseline")
    for line in (*notes, *(f"FAILED {failure}" for failure in failures)):
        print(line, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
