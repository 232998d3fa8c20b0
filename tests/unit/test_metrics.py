"""The score of a page, and the benchmark that compares scores with a baseline."""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from scribe_pipeline.metrics import Line, evaluate, normalise
from scribe_pipeline.metrics.evaluation import pooled


def box(x: float, y: float, width: float, height: float, text: str = "") -> Line:
    return Line(((x, y), (x + width, y), (x + width, y + height), (x, y + height)), text)


def column(*texts: str) -> list[Line]:
    return [box(0, 20 * number, 100, 10, text) for number, text in enumerate(texts)]


def test_a_perfect_page() -> None:
    page = column("one", "two", "three")
    score = evaluate(page, page)
    assert (score.gt_lines, score.found_lines, score.matched) == (3, 3, 3)
    assert (score.recall, score.precision, score.order_tau, score.cer) == (1, 1, 1, 0)


def test_a_merged_line_matches_at_most_one() -> None:
    score = evaluate([box(0, 0, 100, 10)], [box(0, 0, 60, 10), box(60, 0, 40, 10)])
    assert (score.matched, score.recall, score.precision) == (1, 0.5, 1)
    assert evaluate([box(0, 0, 100, 10)], [box(0, 0, 49, 10), box(49, 0, 51, 10)]).matched == 1


def test_matching_is_one_to_one_and_takes_the_best_pair_first() -> None:
    score = evaluate([box(0, 0, 80, 10, "worse"), box(0, 0, 99, 10, "better")], [box(0, 0, 100, 10, "better")])
    assert (score.matched, score.precision, score.cer) == (1, 0.5, 0)


@pytest.mark.parametrize(("width", "matched"), [(50, 1), (49.9, 0), (200, 1), (200.1, 0)])
def test_the_boundary_is_half_of_the_union(width: float, matched: int) -> None:
    assert evaluate([box(0, 0, width, 10)], [box(0, 0, 100, 10)]).matched == matched


def test_an_outline_that_crosses_itself_keeps_its_whole_area() -> None:
    bow_tie = Line(((0, 0), (100, 10), (100, 0), (0, 10)), "")
    assert evaluate([bow_tie], [bow_tie]).matched == 1
    assert evaluate([bow_tie], [box(0, 0, 100, 10)]).matched == 1


@pytest.mark.parametrize("polygon", [(), ((0, 0), (9, 9)), ((0, 0), (9, 9), (18, 18))])
def test_an_outline_without_area_matches_nothing(polygon: tuple[tuple[float, float], ...]) -> None:
    assert evaluate([Line(polygon, "x")], [Line(polygon, "x"), box(0, 0, 9, 9)]).matched == 0


def test_order_tau() -> None:
    first, second, third = page = column("a", "b", "c")
    assert evaluate([second, first, third], page).order_tau == pytest.approx(1 / 3)
    assert evaluate([third, second, first], page).order_tau == -1
    assert evaluate([third, box(500, 500, 9, 9), first], page).order_tau == -1
    assert evaluate([third], page).order_tau is None, "one line has no order"


def test_cer_is_pooled_and_ignores_lines_nobody_transcribed() -> None:
    truth = column("abcdefgh", "ab", "")
    assert evaluate(column("abcdefgh", "xy", "noise"), truth).cer == pytest.approx(2 / 10)
    assert evaluate(column("", "ab", ""), truth).cer == pytest.approx(8 / 10)
    assert evaluate(column("", "", "noise")[2:], truth).cer is None


def test_adjacency_is_of_neighbours_that_were_both_found() -> None:
    """R167: a line that was missed breaks no pair but its own two; extra lines between two matched ones break none."""
    page = column("a", "b", "c", "d", "e")
    a, b, c, d, e = page
    extra = box(500, 500, 9, 9)
    for found, kept, pairs in (
        ([a, b, c, d, e], 4, 4),
        ([a, extra, b, c, d, e], 4, 4),
        ([a, c, d, e], 2, 2),
        ([c, d, e, a, b], 3, 4),
        ([e, d, c, b, a], 0, 4),
        ([a, b, d, c, e], 1, 4),
    ):
        assert (evaluate(found, page).successors.count, evaluate(found, page).successors.of) == (kept, pairs)
    assert evaluate([a, c, e], page).measures()["adjacency"] is None


def test_coverage_is_of_area_however_many_lines_cover_it() -> None:
    """R167: the share of the ground truth's area, counted once; halves and merged lines cover as well as whole ones."""
    truth = [box(0, 0, 100, 10), box(0, 20, 100, 10)]
    for found, covered in (
        ([box(0, 0, 50, 10)], 0.25),
        ([box(0, 0, 60, 10), box(40, 0, 60, 10), box(0, 0, 100, 10)], 0.5),
        ([box(0, 0, 100, 30)], 1),
        ([box(0, 500, 100, 10)], 0),
        ([], 0),
    ):
        assert evaluate(found, truth).coverage == pytest.approx(covered)
    assert evaluate(truth, [*truth, truth[0]]).coverage == 1, "ground truth that overlaps counts once"


def test_a_box_is_compared_with_the_found_lines_box() -> None:
    """R167: a slanted line fills a fraction of its box; ground truth that is no more than the box still finds it."""
    slanted = Line(((0, 80), (0, 100), (100, 20), (100, 0)), "x")
    drawn = box(0, 0, 100, 100, "x")
    boxed = Line(drawn.polygon, "x", box_only=True)
    assert (evaluate([slanted], [drawn]).matched, evaluate([slanted], [boxed]).matched) == (0, 1)
    assert (evaluate([slanted], [drawn]).coverage, evaluate([slanted], [boxed]).coverage) == (pytest.approx(0.2), 1)
    assert evaluate([slanted], [slanted, Line(boxed.polygon, "y", box_only=True)]).matched == 1, "one to one across both kinds"


def test_text_is_counted_by_characters_and_words_on_lines_and_on_the_page() -> None:
    """R167: hand-counted edits; a line that was missed costs the page its characters, and the matched lines nothing."""
    truth = column("the old mill", "by the river", "")
    score = evaluate([*column("the odd mill"), box(500, 500, 90, 10, "noise"), box(0, 40, 100, 10, "unread by experts")], truth)
    assert (score.characters.count, score.characters.of) == (1, 12)
    assert (score.words.count, score.words.of) == (1, 3)
    # "the old mill by the river" against "the odd mill noise"
    assert (score.page_characters.of, score.page_words.of) == (25, 6)
    assert score.page_words.count == 4
    assert score.measures()["page_cer"] == score.page_characters.count / 25


def test_columns_read_across_cost_the_page_not_the_lines() -> None:
    """R167: wrong order shows in the page's error rate, and not in that of the lines."""
    left, right = column("alpha", "beta"), [box(200, 0, 100, 10, "gamma"), box(200, 20, 100, 10, "delta")]
    score = evaluate([left[0], right[0], left[1], right[1]], [*left, *right])
    assert (score.cer, score.measures()["wer"]) == (0, 0)
    assert score.measures()["page_wer"] == 0.5


def test_the_strict_rate_keeps_what_the_other_forgives() -> None:
    """R167: NFC composes and no more: long s, curly quotes and dashes count."""
    score = evaluate(column("Wasser - 'e\u0301'"), column("Wa\u017f\u017fer \u2013 \u2018\u00e9\u2019"))
    assert (score.cer, score.characters_nfc.count, score.characters_nfc.of) == (0, 5, 12)


def test_pooling_counts_lines_and_characters_and_averages_coverage_and_tau() -> None:
    """R167: a long page weighs more in recall and error rates; area and order are means of the pages that have them."""
    long = column(*["abcdefghij"] * 9)
    short = column("kl", "mn")
    first, second = evaluate([long[0], *long[2:]], long), evaluate([short[1], short[0], box(500, 500, 9, 9, "x")], short)
    total = pooled([first, second, evaluate([], column("opq"))])
    assert (total.gt_lines, total.found_lines, total.matched) == (12, 11, 10)
    assert (total.recall, total.precision) == (10 / 12, 10 / 11)
    assert total.coverage == pytest.approx((8 / 9 + 1 + 0) / 3)
    assert total.order_tau == pytest.approx((1 - 1) / 2)
    assert total.measures()["adjacency"] == pytest.approx(6 / 7)
    assert (total.cer, total.characters.of) == (0, 84)
    assert pooled([first]) == first


def test_pages_without_lines() -> None:
    page = column("a", "b")
    empty, unread, invented = evaluate([], []), evaluate([], page), evaluate(page, [])
    assert (empty.recall, empty.precision, empty.order_tau, empty.cer) == (1, 1, None, None)
    assert (unread.recall, unread.precision, unread.cer) == (0, 1, None)
    assert (invented.recall, invented.precision) == (1, 0)


@pytest.mark.parametrize(
    ("text", "compared"),
    [
        ("\u201cA\u201d \u201eB\u201f \u2018c\u2019 \u201ad\u201b", "\"A\" \"B\" 'c' 'd'"),
        ("\uff02full\uff07", "\"full'"),
        ("a\u2010b\u2011c\u2013d\u2014e\u2212f\u2e17g\ufe58h", "a-b-c-d-e-f-g-h"),
        ("Annah\u00ad", "Annah-"),
        ("Wa\u017f\u017fer, o\ufb03ce", "Wasser, office"),
        ("e\u0301", "\u00e9"),
        (" a \u00a0\t b\n", "a b"),
        ("\u00bbA ce titre\u00ab", "\u00bbA ce titre\u00ab"),
    ],
)
def test_normalise(text: str, compared: str) -> None:
    assert normalise(text) == compared


PAGE = "<PcGts><Page><TextRegion>{}</TextRegion></Page></PcGts>"
LINE = '<TextLine><Coords points="{points}"/><TextEquiv><Unicode>{text}</Unicode></TextEquiv></TextLine>'


def svg_points(line: Line) -> str:
    return " ".join(f"{x:g},{y:g}" for x, y in line.polygon)


def annotation(line: Line, granularity: str = "line") -> Mapping[str, object]:
    outline = f'<svg xmlns="http://www.w3.org/2000/svg"><polyline points="0,0 1,1"/><polygon points="{svg_points(line)}"/></svg>'
    box_selector = {"type": "FragmentSelector", "value": "xywh=7,7,7,7"}
    target = {"type": "SpecificResource", "selector": [box_selector, {"type": "SvgSelector", "value": outline}]}
    return {"textGranularity": granularity, "body": {"type": "TextualBody", "value": line.text}, "target": target}


def export(folder: Path, name: str, *items: Mapping[str, object]) -> None:
    (folder / "exports" / f"{name}.json").write_text(json.dumps({"type": "AnnotationPage", "items": items}), encoding="utf-8")


@pytest.fixture
def accuracy() -> ModuleType:
    path = Path(__file__).parents[2] / "benchmarks" / "accuracy.py"
    spec = importlib.util.spec_from_file_location("accuracy", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def scans(tmp_path: Path) -> Path:
    """Page `a` with two lines of ground truth, and page `plain` with none; the exports' folder is empty."""
    (tmp_path / "exports").mkdir()
    (tmp_path / "scans" / "deep").mkdir(parents=True)
    (tmp_path / "scans" / "deep" / "a.png").touch()
    (tmp_path / "scans" / "plain.jpg").touch()
    lines = "".join(LINE.format(points=svg_points(line), text=line.text) for line in column("abcdefghij", "klmnopqrst"))
    (tmp_path / "scans" / "deep" / "a.xml").write_text(PAGE.format(lines), encoding="utf-8")
    return tmp_path


def run(accuracy: ModuleType, folder: Path, recall: str, cer: str) -> int:
    baseline = folder / "BASELINE.tsv"
    header = "page\tgt_lines\tkraken_lines\trecall\tprecision\torder_tau\tcer\n"
    baseline.write_text(f"{header}a\t2\t2\t{recall}\t1.000\t1.000\t{cer}\n", encoding="utf-8")
    code: int = accuracy.main([str(folder / "exports"), str(folder / "scans"), "--baseline", str(baseline)])
    return code


def test_the_benchmark_prints_the_table(accuracy: ModuleType, scans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = column("abcdefghij", "klmnopqrsX")
    by_box = {"textGranularity": "line", "body": {"value": second.text}, "target": "https://x.test/canvas#xywh=0,20,100,10"}
    export(scans, "a", annotation(first, "block"), annotation(first), by_box)
    assert accuracy.main([str(scans / "exports"), str(scans / "scans")]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "page\tgt_lines\tfound\trecall\tprecision\torder_tau\tcer",
        "a\t2\t2\t1.000\t1.000\t1.000\t0.0500",
    ]
    assert err == "plain: no ground truth\n"


def test_a_page_with_ground_truth_needs_an_export(accuracy: ModuleType, scans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert accuracy.main([str(scans / "exports"), str(scans / "scans")]) == 1
    assert "FAILED a: no export" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("recall", "cer", "code"),
    [
        ("1.000", "0.0450", 0),  # a poor page may lose 0.05
        ("1.000", "0.0310", 0),
        ("1.000", "0.0300", 1),  # a good one 0.005
        ("-", "-", 0),
    ],
)
def test_cer_may_rise_by_the_baselines_measure(accuracy: ModuleType, scans: Path, recall: str, cer: str, code: int) -> None:
    export(scans, "a", *map(annotation, column("abcdefghij", "klmnopqrsX")))
    assert run(accuracy, scans, recall, cer) == code


@pytest.mark.parametrize(("recall", "code"), [("0.520", 0), ("0.521", 1)])
def test_recall_may_fall_by_two_hundredths(accuracy: ModuleType, scans: Path, recall: str, code: int) -> None:
    export(scans, "a", annotation(column("abcdefghij")[0]))
    assert run(accuracy, scans, recall, "0.0000") == code


@pytest.mark.parametrize(("swapped", "code"), [(False, 0), (True, 1)])
def test_order_may_not_be_lost(accuracy: ModuleType, scans: Path, swapped: bool, code: int) -> None:
    lines = [annotation(line) for line in column("abcdefghij", "klmnopqrst")]
    export(scans, "a", *(reversed(lines) if swapped else lines))
    assert run(accuracy, scans, "1.000", "0.0000") == code


def test_text_that_is_gone_fails(accuracy: ModuleType, scans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    export(scans, "a")
    assert run(accuracy, scans, "0.000", "0.4000") == 1
    assert "no line to compare text on" in capsys.readouterr().err


def test_nothing_to_score_is_refused(accuracy: ModuleType, scans: Path) -> None:
    for pages in (scans / "exports", scans / "absent"):
        with pytest.raises(SystemExit, match="2"):
            accuracy.main([str(scans / "exports"), str(pages)])
