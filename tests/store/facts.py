"""What every job's facts are to look like, and what tests plant in rows to see that it does not get there."""

import json
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from scribe_pipeline.outcomes import QUERIES, Family, Policy, ask, dimensions
from tests.endings import FLYERS, JOBS, Endings

# Records, and tells nobody.
QUIET = Policy(enabled=False, recipient=None, lookback_hours=24, max_per_hour=12)
TEXT, WHOLE, FLAG, NUMBER = (str, type(None)), (int, type(None)), (bool, type(None)), (int, float, type(None))
STATE = {
    "failures": (list,),
    "error": TEXT,
    "predicates_version": (int,),
    "notice": (str,),
    "notice_attempts": (int,),
    "notice_claimed_at": TEXT,
}
COMMON = {"pages": WHOLE, "pages_source": TEXT, "bytes": WHOLE, "prior_attempts": (int,), "duration_seconds": (int, float)} | STATE
KINDS = {
    FLYERS: COMMON
    | dict.fromkeys(["mime_type", "producer", "creator", "pdf_version", "mode", "ocr_kind", "tree_state", "route"], TEXT)
    | dict.fromkeys(["input_audit_band", "lane", "source"], TEXT)
    | dict.fromkeys(["scanned", "already_tagged", "eligible", "design_dense", "has_xfa", "input_audit_already_accessible"], FLAG)
    | dict.fromkeys(["rerouted", "force", "flatten"], FLAG)
    | dict.fromkeys(["widget_count", "unembedded_fonts", "substituted_fonts", "text_line_count"], WHOLE)
    | dict.fromkeys(["raster_coverage", "input_audit_score"], NUMBER),
    JOBS: COMMON
    | dict.fromkeys(
        ["media_type", "segmentation_model", "segmentation_engine", "provider", "model", "engine", "context", "origin"], TEXT
    )
    | {"error_category": TEXT}
    | dict.fromkeys(["width", "height", "segments", "completed_segments", "failed_segments", "attempts"], WHOLE),
}
PERSONS = [
    "Jane Doe",
    "jane.doe",
    "janedoe",
    "Ünsal Öztürk",
    'Jane "JD" Doe',
    "Jane\\Doe",
    "李小龍先生",
    "O'Brien & Sons",
    "J. R. D\ttab",
]
EXAMPLES = settings(max_examples=40)


def check_kinds(facts: dict[str, Any], kinds: dict[str, tuple[type, ...]]) -> None:
    """Every key of the family is there, and each value of its kind."""
    assert facts.keys() == kinds.keys()
    assert [name for name, value in facts.items() if type(value) not in kinds[name]] == []
    assert all(type(failure) is str for failure in facts["failures"])


def planting_texts(planted: list[str]) -> st.SearchStrategy[str]:
    """Texts that have something planted in them, or hold anything that a column can."""
    frames = st.sampled_from(["{}", "cannot read {}", "({})", "x: {}, y", '"{}"', "{}\n{}", "ocr {}"])
    framed = st.builds(lambda frame, text: frame.replace("{}", text), frames, st.sampled_from(planted))
    return st.sampled_from(planted) | framed | st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=10)


def planting_json(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Whatever jsonb can hold, with such texts for its strings and its keys."""
    numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.just(10**400)
    return st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
        max_leaves=5,
    )


def check_planted(facts: dict[str, Any], planted: list[str]) -> None:
    """No text of the facts has anything of it, be it written as JSON writes it."""
    told = [text for value in facts.values() for text in (value if isinstance(value, list) else [value]) if isinstance(text, str)]
    forms = {form.lower() for text in planted for form in (text, json.dumps(text, ensure_ascii=False)[1:-1])}
    assert [text for text in told if any(form in text.lower() for form in forms)] == []


def check_queries(endings: Endings, family: Family) -> None:
    """Every query, by every dimension, can be asked of what is recorded."""
    for query in QUERIES:
        ask(endings.house.engine, query, family)
    for dimension in dimensions():
        ask(endings.house.engine, "failure_rate", family, dimension)
