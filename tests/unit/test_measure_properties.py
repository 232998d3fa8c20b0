"""What must hold of the measures whatever the page: found by hypothesis, on grids of lines in two columns."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from scribe_pipeline.metrics import Line, PageScore, evaluate
from scribe_pipeline.metrics.evaluation import pooled

texts = st.text(st.characters(codec="utf-8", exclude_categories=("Cc",)), max_size=12)


def line(place: int, text: str) -> Line:
    """The line at a place of a page of two columns of ten; places overlap nowhere."""
    left, top = 200 * (place // 10), 20 * (place % 10)
    return Line(((left, top), (left + 150, top), (left + 150, top + 12), (left, top + 12)), text)


pages = st.lists(texts, min_size=1, max_size=20).map(lambda said: [line(place, text) for place, text in enumerate(said)])
subsets = st.sets(st.integers(0, 19))
unordered = {"order_tau": None, "adjacency": None, "page_cer": None, "page_wer": None}


def without_order(score: PageScore) -> dict[str, float | None]:
    """The measures that do not look at the order of lines."""
    return score.measures() | unordered


@given(pages)
def test_a_page_agrees_with_itself(page: list[Line]) -> None:
    """R167: whatever is transcribed, found as it is, is perfect; None only where there is nothing to measure."""
    measures = evaluate(page, page).measures()
    assert [measures[name] for name in ("recall", "precision", "coverage")] == [1, 1, 1]
    assert {measures["order_tau"], measures["adjacency"]} == ({1.0} if len(page) > 1 else {None})
    assert {measures[name] for name in ("cer", "cer_nfc", "wer", "page_cer", "page_wer")} <= {0.0, None}


@given(pages, st.randoms(use_true_random=False))
def test_the_order_of_found_lines_changes_measures_of_order_only(page: list[Line], random: object) -> None:
    """R167: lines, area and the text of lines are judged apart from the order that they are found in."""
    shuffled = [*page]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert without_order(evaluate(shuffled, page)) == without_order(evaluate(page, page))


@given(pages, subsets)
def test_extra_lines_lower_precision_and_nothing_else_about_lines(page: list[Line], places: set[int]) -> None:
    """R167: what is found where there is nothing costs precision and the page's text."""
    extra = [replace(line(place, "extra"), polygon=tuple((x + 5000, y) for x, y in line(place, "").polygon)) for place in places]
    plain, noisy = evaluate(page, page), evaluate([*page, *extra], page)
    assert noisy.precision == len(page) / (len(page) + len(extra))
    ignored = {"precision": None, "page_cer": None, "page_wer": None}
    assert noisy.measures() | ignored == plain.measures() | ignored
    assert noisy.page_characters.count >= plain.page_characters.count


@given(pages, subsets)
def test_lines_that_are_missed_lower_recall_and_not_precision(page: list[Line], places: set[int]) -> None:
    """R167: a page cannot gain by finding less: its own error rate counts what is missing."""
    found = [entry for place, entry in enumerate(page) if place not in places]
    score = evaluate(found, page)
    assert (score.recall, score.precision) == (len(found) / len(page), 1)
    assert abs(score.coverage - len(found) / len(page)) < 1e-9
    assert score.characters.count == 0
    assert score.order_tau == (1 if len(found) > 1 else None)
    if len(found) == 0 and score.page_characters.of:
        assert score.page_characters.rate == 1


@given(pages, st.lists(texts, min_size=20, max_size=20))
def test_whatever_is_read_the_measures_keep_their_bounds(page: list[Line], read: list[str]) -> None:
    """R167: no text makes a measure fall out of its range, and pooling a page with itself changes none."""
    score = evaluate([replace(entry, text=text) for entry, text in zip(page, read, strict=False)], page)
    assert all(value is None or value >= 0 for name, value in score.measures().items() if name != "order_tau")
    assert pooled([score, score]).measures() == score.measures()
