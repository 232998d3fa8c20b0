"""The facts of rows as other services and this program leave them: every key, from where it is to come, and nothing of a person."""

import json
from collections.abc import Iterator
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import uuid_utils.compat as uuid_utils
from hypothesis import given
from hypothesis import strategies as st

from tests.endings import FLYERS, Endings
from tests.houses import House
from tests.mail_sink import MailSink
from tests.store.facts import (
    EXAMPLES,
    KINDS,
    PERSONS,
    QUIET,
    check_kinds,
    check_planted,
    check_queries,
    planting_json,
    planting_texts,
)

SIGNALS = {
    "page_count": 12, "producer": "Adobe PDF Library 17.0", "creator": "Adobe InDesign 19.1", "pdf_version": "1.7",
    "widget_count": 3, "has_xfa": False, "unembedded_fonts": 2, "substituted_fonts": 0,
    "text_line_count": 240, "raster_coverage": 0.25,
}  # fmt: skip
PREFLIGHT = {
    "mode": "ocr", "ocr_kind": "image-only", "tree_state": "present-and-broken", "route": "full-retag", "eligible": True,
    "design_dense": False, "signals": SIGNALS,
}  # fmt: skip


@pytest.fixture
def endings(house: House) -> Iterator[Endings]:
    with MailSink() as sink:
        yield Endings(house, sink)


def facts_of(endings: Endings, job_id: UUID) -> dict[str, Any]:
    """What a scan records of a flyer's job, with every key and each of its kind."""
    endings.scan(QUIET)
    facts: dict[str, Any] = endings.outcome(job_id).outcome_facts
    check_kinds(facts, KINDS[FLYERS])
    return facts


def stored_file(endings: Endings, **columns: Any) -> UUID:
    file_id = uuid_utils.uuid7()
    values = {"id": file_id, "name": "Jane Doe.pdf", "size": 123_456, "mime_type": "application/pdf"} | columns
    given_values = ", ".join(
        f"CAST(:{name} AS {'numeric' if name == 'input_audit_score' else FILE_TYPES[name]})" for name in values
    )
    endings.house.execute(f"INSERT INTO files ({', '.join(values)}) VALUES ({given_values})", **values)
    return UUID(str(file_id))


FILE_TYPES = {
    "id": "uuid", "name": "text", "size": "bigint", "mime_type": "text", "input_audit_band": "text",
    "input_audit_already_accessible": "boolean",
}  # fmt: skip


def test_every_fact_comes_from_its_source(endings: Endings) -> None:
    """R212: with all there is to be known, each key has its value and its kind."""
    file_id = stored_file(
        endings, name="b.pdf", input_audit_score="61.5", input_audit_band="B", input_audit_already_accessible=False
    )
    job = endings.flyer(
        "fidelity", file_id=file_id, user_id=uuid_utils.uuid7(), preflight=PREFLIGHT, progress={"pagesTotal": 9}, charge_units=7,
        lane="host", rerouted=False, force=True, flatten=False, source="dashboard",
    )  # fmt: skip
    facts = facts_of(endings, job)
    state = {"notice": "none", "notice_attempts": 0, "notice_claimed_at": None}
    assert facts == state | {
        "pages": 12, "pages_source": "preflight", "bytes": 123_456, "mime_type": "application/pdf",
        "producer": "Adobe PDF Library 17.0", "creator": "Adobe InDesign 19.1", "pdf_version": "1.7", "mode": "ocr",
        "scanned": True, "ocr_kind": "image-only", "tree_state": "present-and-broken", "already_tagged": True,
        "route": "full-retag", "eligible": True, "design_dense": False, "widget_count": 3, "has_xfa": False, "unembedded_fonts": 2,
        "substituted_fonts": 0, "text_line_count": 240, "raster_coverage": 0.25, "input_audit_score": 61.5, "input_audit_band": "B",
        "input_audit_already_accessible": False, "lane": "host", "rerouted": False, "force": True, "flatten": False,
        "source": "dashboard", "prior_attempts": 0, "duration_seconds": 60, "error": None,
        "failures": ["pixel diff 0.12 on page 3"], "predicates_version": 2,
    }  # fmt: skip


def without(facts: dict[str, Any]) -> dict[str, Any]:
    """The characteristics that are known."""
    always = ("prior_attempts", "duration_seconds", "failures", "error", "notice", "notice_attempts", "predicates_version")
    return {name: value for name, value in facts.items() if value is not None and name not in always}


def test_a_row_of_which_nothing_is_known_has_every_key(endings: Endings) -> None:
    """R212, R217, R220: without preflight, file or options all characteristics are there and null, and the row has its class."""
    job = endings.flyer("pipeline_error")
    assert without(facts_of(endings, job)) == {}
    assert endings.outcome(job).outcome_class == "pipeline_error"


@pytest.mark.parametrize(
    ("preflight", "progress", "charge_units", "expected"),
    [
        ({"signals": {"page_count": 4}}, {"pagesTotal": 3}, 2, (4, "preflight")),
        ({"signals": {"page_count": 0}}, {"pagesTotal": 3}, 2, (0, "preflight")),
        ({"signals": {}}, {"pagesTotal": 3}, 2, (3, "progress")),
        ({"page_count": 4}, {"pagesTotal": 3}, 2, (3, "progress")),
        ({"signals": {"page_count": None}}, {"pagesTotal": 3}, 2, (3, "progress")),
        ({"signals": {"page_count": "four"}}, {"pagesTotal": 3}, 2, (3, "progress")),
        ({"signals": {"page_count": [1, 2]}}, {"pagesTotal": True}, 2, (2, "charge_units")),
        ({"signals": "none"}, {"pagesTotal": -1}, 2, (2, "charge_units")),
        (None, None, 2, (2, "charge_units")),
        (None, {}, -2, (None, None)),
        (None, None, None, (None, None)),
    ],
)
def test_pages_are_told_by_the_first_that_knows(
    endings: Endings, preflight: Any, progress: Any, charge_units: int | None, expected: tuple[int | None, str | None]
) -> None:
    """R212: preflight, else progress, else what was charged; `pages_source` says which."""
    job = endings.flyer(preflight=preflight, progress=progress, charge_units=charge_units)
    facts = facts_of(endings, job)
    assert (facts["pages"], facts["pages_source"]) == expected


@pytest.mark.parametrize(("file", "key"), [(False, "uploads/letter.pdf"), (True, None)])
def test_without_a_file_row_its_facts_are_null(endings: Endings, file: bool, key: str | None) -> None:
    """R212: raw keys, and files that are deleted, have no size, type or audit."""
    file_id = uuid_utils.uuid7() if file else None
    facts = facts_of(endings, endings.flyer(file_id=file_id, input_key=key, preflight=PREFLIGHT))
    names = ("bytes", "mime_type", "input_audit_score", "input_audit_band", "input_audit_already_accessible")
    assert [facts[name] for name in names] == [None] * 5
    assert facts["pages"] == 12


@pytest.mark.parametrize(
    ("mode", "scanned", "tree_state", "tagged"),
    [
        ("ocr", True, "absent", False),
        ("text", False, "present-and-usable", True),
        (None, None, None, None),
        (7, None, ["absent"], None),
    ],
)
def test_what_follows_from_mode_and_tree(endings: Endings, mode: Any, scanned: Any, tree_state: Any, tagged: Any) -> None:
    """R212: `scanned` and `already_tagged` are true, false or unknown as what they follow from."""
    facts = facts_of(endings, endings.flyer(preflight={"mode": mode, "tree_state": tree_state}))
    assert (facts["scanned"], facts["already_tagged"]) == (scanned, tagged)


@pytest.mark.parametrize("score", ["NaN", "Infinity", "-Infinity", "1e400"])
def test_a_score_that_json_has_not_is_unknown(endings: Endings, score: str) -> None:
    """R212: a numeric may hold what no number of JSON is; the row is recorded all the same."""
    facts = facts_of(endings, endings.flyer(file_id=stored_file(endings, input_audit_score=Decimal(score))))
    assert facts["input_audit_score"] is None


@pytest.mark.parametrize(
    "preflight",
    ['{"signals": {"page_count": 1e400, "raster_coverage": 1e400}}',
     '{"signals": {"page_count": 1e6000, "raster_coverage": 1e6000}}',
     f'{{"signals": {"[" * 1500}1{"]" * 1500}}}', "null", "7", '"text"', "[1]", '{"signals": [1], "mode": {"a": 1}}'],
)  # fmt: skip
def test_json_that_python_cannot_hold_is_recorded(endings: Endings, preflight: str) -> None:
    """R211, R220: numbers of any length, objects of any depth and values of any kind leave the row and its neighbours readable."""
    job, neighbour = endings.flyer(preflight=preflight), endings.flyer(preflight=PREFLIGHT)
    facts = facts_of(endings, job)
    assert (facts["pages"], facts["mode"]) == (None, None)
    assert facts["raster_coverage"] in (None, 10**400)
    assert endings.outcome(neighbour).outcome_facts["pages"] == 12


def test_prior_attempts_are_earlier_of_the_same_user_on_the_same_file(endings: Endings) -> None:
    """R213: neither later ones, nor other people's, nor those on other files count."""
    user, other, file_id, other_file = (uuid_utils.uuid7() for _ in range(4))
    for ago in (9000, 8000):
        endings.flyer("success", ago, user_id=user, file_id=file_id, input_key="k1")
    endings.flyer(ago=7000, user_id=other, file_id=file_id, input_key="k1")
    endings.flyer(ago=7000, user_id=None, file_id=file_id)
    endings.flyer(ago=7000, user_id=user, file_id=other_file, input_key="k1")
    endings.flyer(ago=7000, user_id=user, file_id=None, input_key="k1")
    job = endings.flyer(ago=5000, user_id=user, file_id=file_id, input_key="k1")
    endings.flyer(ago=4000, user_id=user, file_id=file_id)
    assert facts_of(endings, job)["prior_attempts"] == 2


def test_prior_attempts_on_a_key(endings: Endings) -> None:
    """R213: without a file the key counts, and unknown users are one; with neither file nor key there is nothing prior."""
    user = uuid_utils.uuid7()
    for ago in (9000, 8000, 7000):
        endings.flyer(ago=ago, user_id=user, input_key="k1")
    endings.flyer(ago=7000, user_id=user, input_key="k2")
    endings.flyer(ago=6500, user_id=None, input_key="k1")
    endings.flyer(ago=6000, user_id=user)
    keyed, unknown, neither = (
        endings.flyer(ago=5000, user_id=who, input_key=key) for who, key in ((user, "k1"), (None, "k1"), (user, None))
    )
    assert [facts_of(endings, job)["prior_attempts"] for job in (keyed, unknown, neither)] == [3, 1, 0]


def test_duration_ends_with_the_job(endings: Endings) -> None:
    """R214: from its creation to the write that ended it, whenever it is recorded and whatever is written of its notice later."""
    job = endings.flyer(ago=5000)
    endings.active()
    endings.sink.order(451, times=1)
    for _ in range(2):
        endings.scan()
        endings.pass_time(1000)
    assert endings.notice(job)[0] == "sent"
    row = endings.outcome(job)
    assert row.outcome_facts["duration_seconds"] == 60
    assert (row.updated_at - row.created_at).total_seconds() == pytest.approx(60, abs=0.01)


def test_a_job_never_ends_before_it_began(endings: Endings) -> None:
    """R214: clocks of other services may differ."""
    job = endings.flyer()
    endings.unguarded("UPDATE flyer_tagging_jobs SET created_at = updated_at + interval '1 hour' WHERE id = :id", id=job)
    assert facts_of(endings, job)["duration_seconds"] == 0


RAW = (
    "cannot read https://example.org/jane for jane@example.org at /home/jane/scans/letter, "
    "job 3f2504e0-4f89-41d3-9a0c-0305e82c3301, see jane-letter.pdf"
)


def test_raw_texts_stay_in_the_row_and_the_mail(endings: Endings) -> None:
    """R215: facts have 20 of 30 failures, redacted; the columns are what they were, and the mail says what they say."""
    failures = [f"{RAW} {number}" for number in range(30)]
    job = endings.flyer("fidelity", failures=failures, error=RAW)
    endings.active()
    endings.scan()
    row = endings.outcome(job)
    kept = "cannot read [url] for [email] at [path], job [id], see [file]"
    assert row.outcome_facts["failures"] == [f"{kept} {number}" for number in range(20)]
    assert row.outcome_facts["error"] == kept
    assert (row.failures, row.error) == (failures, RAW)
    (mail,) = endings.mails
    body = mail.message.get_body(("plain",))
    assert body is not None
    assert [line for line in body.get_content().splitlines() if RAW in line] == [
        f"  error: {RAW}",
        *(f"  failure: {RAW} {number}" for number in range(30)),
    ]


def test_a_pipeline_error_after_preflight_has_its_characteristics(endings: Endings) -> None:
    """R217: what was written before the error is there."""
    facts = facts_of(endings, endings.flyer("pipeline_error", preflight=PREFLIGHT))
    assert (facts["pages"], facts["mode"], facts["scanned"], facts["producer"]) == (12, "ocr", True, "Adobe PDF Library 17.0")


BY_THEIR_FORM = ["jane@example.org", "/home/jane/scan", "C:\\Users\\jane\\a.txt", "https://example.org/jane", "s3://scans/jane"]


@pytest.mark.parametrize("person", PERSONS)
def test_one_text_in_every_field_gets_nowhere(endings: Endings, person: str) -> None:
    """R211: names, ids, keys and whatever tells by its form what it is, each of them written into all fields of a row at once."""
    user, file_id, name = uuid_utils.uuid7(), stored_file(endings, name=f"{person}.pdf"), f"{person}.pdf"
    key = f"uploads/{user}/{name}"
    planted = [person, name, key, str(user), str(file_id), user.hex, *BY_THEIR_FORM]
    for text in planted:
        endings.house.execute("UPDATE files SET mime_type = :text, input_audit_band = :text", text=text)
        preflight = dict.fromkeys(PREFLIGHT, text) | {"signals": dict.fromkeys(SIGNALS, text)}
        job = endings.flyer(
            preflight=preflight, progress={"pagesTotal": text}, failures=[text, {text: [text]}], error=text, lane=text, source=text,
            user_id=user, file_id=file_id, input_key=key,
        )  # fmt: skip
        facts = facts_of(endings, job)
        check_planted(facts, planted)
        assert len(facts["failures"]) == 2 and facts["error"] and facts["producer"]


@st.composite
def plantings(draw: st.DrawFn) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Columns of a job and of its file, of any kind where the column allows it, and what is planted in all of them."""
    person = draw(st.sampled_from(PERSONS))
    user, file_id, name = uuid_utils.uuid7(), uuid_utils.uuid7(), person + draw(st.sampled_from([".pdf", ".PDF", ".qxd", ""]))
    key = f"uploads/{user}/{name}"
    planted = [person, name, key, str(user), str(file_id), user.hex, *BY_THEIR_FORM]
    texts = planting_texts(planted)
    anything = planting_json(texts)
    signals = st.fixed_dictionaries(dict.fromkeys(SIGNALS, texts | anything)) | anything
    preflight = st.fixed_dictionaries(dict.fromkeys(PREFLIGHT, texts | anything) | {"signals": signals})
    json_of = {"preflight": preflight | anything, "progress": st.fixed_dictionaries({"pagesTotal": anything}) | anything}
    columns = {column: json.dumps(draw(value)) for column, value in (json_of | {"failures": st.lists(anything) | anything}).items()}
    optional = {column: draw(st.none() | texts) for column in ("error", "lane", "source")}
    flags = {column: draw(st.none() | st.booleans()) for column in ("passed", "rerouted", "force", "flatten")}
    job = columns | optional | flags | {"status": draw(st.sampled_from(["done", "failed"])), "input_key": key}
    job |= {"user_id": user, "file_id": file_id, "charge_units": draw(st.none() | st.integers(-(2**31), 2**31 - 1))}
    file = {"id": file_id, "name": name, "size": draw(st.none() | st.integers(-(2**63), 2**63 - 1))}
    file |= {column: draw(st.none() | texts) for column in ("mime_type", "input_audit_band")}
    return job, file, planted


@EXAMPLES
@given(plantings())
def test_nothing_of_a_person_gets_into_a_flyers_facts(endings: Endings, planting: Any) -> None:
    """R211, R212: whatever is planted anywhere, of whatever kind, the facts are stored without it and serve every query."""
    job, file, planted = planting
    stored_file(endings, **file)
    check_planted(facts_of(endings, endings.flyer(**job)), planted)
    check_queries(endings, FLYERS)
