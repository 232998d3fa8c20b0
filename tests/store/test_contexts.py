"""Contexts as operators make and change them, what they allow, what they have read, and what a batch makes of one."""

import hashlib
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import uuid_utils.compat as uuid_utils
from sqlalchemy import event

from scribe_pipeline.contexts import (
    ContextSnapshot,
    ContextTotals,
    context_totals,
    edit_context,
    list_contexts,
    load_context,
)
from scribe_pipeline.contexts import create_context as create
from scribe_pipeline.database import dump_json, in_transaction
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.jobs import claim_jobs, request_job
from scribe_pipeline.workspaces import workspace_id
from tests.houses import House, line_shape, png
from tests.store.test_context_rules import FIELDS, OPERATOR, context, other_workspace, refused, resolve, rule

LONG = "x" * 8192


def kept(house: House, context_id: UUID) -> Any:
    """The row of a context."""
    (row,) = house.rows("SELECT * FROM contexts WHERE id = :id", id=context_id)
    return row


def edit(house: House, name: str, workspace: str | None = None, default: bool | None = None, **changes: Any) -> tuple[str, ...]:
    """Change a context."""
    return edit_context(house.engine, name, changes, OPERATOR, workspace=workspace, default=default)


def test_what_is_said_is_kept_and_the_rest_has_its_default(house: House) -> None:
    """R166: a context is a row; its maker is in the audit."""
    plain = kept(house, create(house.engine, {"name": "plain"} | FIELDS, OPERATOR))
    assert (plain.workspace_id, plain.is_default, plain.description, plain.temperature, plain.system_prompt) == (
        None, False, "", None, None
    )  # fmt: skip
    assert (plain.segment_cap, plain.line_concurrency, plain.line_timeout_s) == (500, 6, 6)
    said = {
        "name": "charters of St. Gall",
        "description": "8th century",
        "segmentation_model": "kraken-blla-columns",
        "transcription_provider": "local",
        "transcription_model": "PP-OCRv6_rec_small",
        "temperature": 0.25,
        "system_prompt": "Read.\nWrite.",
        "segment_cap": 40,
        "line_concurrency": 2,
        "line_timeout_s": 1.5,
    }
    whole = kept(house, create(house.engine, said, OPERATOR, workspace="default"))
    assert {name: getattr(whole, name) for name in said} == said
    assert whole.workspace_id == house.value("SELECT id FROM workspaces")
    entries = house.rows("SELECT action, subject, actor, reason FROM operator_audit ORDER BY created_at")
    assert [tuple(entry) for entry in entries] == [
        ("context create", f"context {row.id}", OPERATOR.name, OPERATOR.reason) for row in (plain, whole)
    ]


@pytest.mark.parametrize(
    ("field", "value", "fine"),
    [
        ("name", "", False), ("name", " a", False), ("name", "a\n", False), ("name", "n" * 256, False), ("name", "n" * 255, True),
        ("name", "a\x1bb", False), ("name", "Grüße, 1. Teil", True), ("name", "a", True),
        ("description", "two\nlines", False), ("description", "d" * 1025, False), ("description", "d" * 1024, True),
        ("temperature", -0.1, False), ("temperature", 2.1, False), ("temperature", 2, True), ("temperature", 0, True),
        ("temperature", "warm", False), ("temperature", float("nan"), False),
        ("system_prompt", LONG, True), ("system_prompt", LONG + "x", False), ("system_prompt", "a\0", False),
        ("system_prompt", "\udcff", False),
        ("segment_cap", 0, False), ("segment_cap", 1, True), ("segment_cap", 100_001, False),
        ("line_concurrency", 0, False), ("line_concurrency", 65, False), ("line_concurrency", 64, True),
        ("line_timeout_s", 0, False), ("line_timeout_s", float("inf"), False), ("line_timeout_s", 0.5, True),
        ("endpoint", "https://elsewhere", False),
    ],
)  # fmt: skip
def test_each_field_has_its_bounds(house: House, field: str, value: Any, fine: bool) -> None:
    """What is out of bounds is refused in a line that names the field, whether it is made so or changed to it."""
    fields = {"name": "new"} | FIELDS | {field: value}
    if fine:
        assert getattr(kept(house, create(house.engine, fields, OPERATOR)), field) == value
    else:
        assert f"the context's {field} is not valid" in refused(create, house.engine, fields, OPERATOR).message
        if field != "name":
            assert f"the context's {field} is not valid" in refused(lambda: edit(house, "letter", **{field: value})).message


@pytest.mark.parametrize(
    ("engines", "known"),
    [
        ({"segmentation_model": "blla"}, "'blla' is not in the model registry; it has: kraken-blla, kraken-blla-columns"),
        ({"segmentation_model": "../blla"}, "'../blla' is not in the model registry; it has: kraken-blla"),
        ({"transcription_provider": "oracle", "transcription_model": "x"}, "not in the model registry; it has: local"),
        (
            {"transcription_provider": "gemini", "transcription_model": "x"},
            "'gemini/x' is not in the model registry; it has: local",
        ),
        (
            {"transcription_provider": "local", "transcription_model": "PP-OCRv6_det_small"},
            "'local/PP-OCRv6_det_small' is not in the model registry; it has: local/PP-OCRv6_rec_small",
        ),
        (
            {"transcription_provider": "local", "transcription_model": "../models/PP-OCRv6_rec_small"},
            "is not in the model registry; it has: local/PP-OCRv6_rec_small",
        ),
    ],
)
def test_only_registered_engines_can_be_named(house: House, engines: dict[str, str], known: str) -> None:
    """R166: a model that is not in the registry is refused in a line that lists what is; nothing is made or changed."""
    before = house.rows("SELECT * FROM contexts ORDER BY id")
    assert known in refused(create, house.engine, {"name": "new"} | FIELDS | engines, OPERATOR).message
    assert known in refused(lambda: edit(house, "letter", **engines)).message
    assert house.rows("SELECT * FROM contexts ORDER BY id") == before


def test_a_name_is_taken_once_in_each_scope(house: House) -> None:
    """R166: another workspace, and the system, may have the same name; the second of one scope is told in a line."""
    other_workspace(house)
    for workspace in (None, "default", "other"):
        context(house, "charters", workspace)
        with pytest.raises(ScribeError, match="there is a context of that name already") as caught:
            context(house, "charters", workspace)
        assert caught.value.category is Category.FAILED_PRECONDITION
    assert house.value("SELECT count(*) FROM contexts WHERE name = 'charters'") == 3
    assert house.value("SELECT count(*) FROM operator_audit") == 3


def test_a_new_default_takes_the_place_of_the_old_one(house: House) -> None:
    """One of each scope at most, whether it is made or edited so; the others' defaults stay."""
    other_workspace(house)

    def defaults(workspace: str | None) -> list[str]:
        listed = in_transaction(house.engine, list_contexts)
        return [one.context.name for one in listed if one.is_default and one.workspace == workspace]

    context(house, "first", "default", default=True)
    context(house, "theirs", "other", default=True)
    context(house, "second", "default", default=True)
    assert (defaults(None), defaults("default"), defaults("other")) == (["letter"], ["second"], ["theirs"])
    assert edit(house, "first", "default", default=True) == ("is_default",)
    assert edit(house, "newspaper", default=True) == ("is_default",)
    assert (defaults(None), defaults("default"), defaults("other")) == (["newspaper"], ["first"], ["theirs"])
    assert edit(house, "first", "default", default=False) == ("is_default",)
    assert (defaults("default"), resolve(house).context.name) == ([], "newspaper")
    with pytest.raises(ScribeError, match="the system has always a default"):
        edit(house, "newspaper", default=False)


@pytest.mark.parametrize("editing", [False, True])
def test_of_two_defaults_at_once_the_later_is_told(house: House, editing: bool) -> None:
    """Where another process makes its own the default in between, one line says so and nothing has changed."""
    context(house, "mine", "default")
    raced: list[UUID] = []

    def ask() -> object:
        return edit(house, "mine", "default", default=True) if editing else context(house, "later", "default", default=True)

    def race(_connection: object, _cursor: object, sql: str, *_rest: object) -> None:
        if sql.startswith("UPDATE contexts") and not raced:
            raced.append(uuid_utils.uuid7())
            raced.append(context(house, "theirs", "default", default=True))

    event.listen(house.engine, "after_cursor_execute", race)
    try:
        with pytest.raises(ScribeError, match="another context has become the default meanwhile") as caught:
            ask()
    finally:
        event.remove(house.engine, "after_cursor_execute", race)
    assert caught.value.category is Category.FAILED_PRECONDITION
    assert resolve(house).context.name == "theirs"
    assert house.rows("SELECT name FROM contexts WHERE workspace_id IS NOT NULL ORDER BY name") == [("mine",), ("theirs",)]


def test_an_edit_changes_what_is_said_and_says_what_that_was(house: House) -> None:
    """R34: the audit names the fields; what is so already is no change, and not audited."""
    before = kept(house, house.value("SELECT id FROM contexts WHERE name = 'letter'"))
    assert edit(house, "letter", temperature="0.5", segment_cap=500) == ("temperature",)
    assert edit(house, "letter", system_prompt="Read it.", line_concurrency=8) == ("system_prompt", "line_concurrency")
    assert edit(house, "letter", system_prompt="Read it.") == ()
    after = kept(house, before.id)
    changed = {name for name in before._fields if getattr(before, name) != getattr(after, name)}
    assert changed == {"temperature", "system_prompt", "line_concurrency", "updated_at"}
    assert edit(house, "letter", system_prompt="", temperature=None) == ("temperature", "system_prompt")
    assert (kept(house, before.id).temperature, kept(house, before.id).system_prompt) == (None, None)
    assert [row[0] for row in house.rows("SELECT action FROM operator_audit ORDER BY created_at")] == [
        "context edit: temperature", "context edit: system_prompt, line_concurrency", "context edit: temperature, system_prompt"
    ]  # fmt: skip


def test_what_a_workspace_does_not_own_it_does_not_edit(house: House) -> None:
    """The system's contexts are edited as the system's, and those of another workspace not at all."""
    other_workspace(house)
    context(house, "theirs", "other")
    before = house.rows("SELECT * FROM contexts ORDER BY id")
    for name, workspace, told in (
        ("letter", "default", "the workspace default has no context 'letter' of its own; it has: none"),
        ("theirs", "default", "the workspace default has no context 'theirs' of its own"),
        ("letter", "other", "it has: theirs"),
        ("theirs", None, "the system has no context 'theirs' of its own; it has: letter, manuscript, newspaper"),
        ("letter", "nowhere", "there is no workspace 'nowhere'"),
    ):
        assert told in refused(lambda name=name, workspace=workspace: edit(house, name, workspace, temperature=1)).message
    assert house.rows("SELECT * FROM contexts ORDER BY id") == before
    assert edit(house, "theirs", "other", temperature=1) == ("temperature",)


def test_a_job_keeps_what_it_was_made_with(house: House) -> None:
    """R2, R99: an edit reaches no job that is there, and every one that is asked for afterwards."""
    image = house.page()
    house.job(image)
    before = claim_jobs(house.engine, 60)[0].context_snapshot
    edit(house, "letter", temperature=1, system_prompt="new", line_concurrency=1)
    assert house.value("SELECT context_snapshot FROM transcription_jobs") == before
    request_job(house.engine, image.id, None, 3, OPERATOR)
    frozen = ContextSnapshot.from_text(house.value("SELECT context_snapshot FROM transcription_jobs WHERE status = 'pending'"))
    assert (frozen.temperature, frozen.system_prompt, frozen.line_concurrency) == (1, "new", 1)
    assert ContextSnapshot.from_text(before).temperature is None


@pytest.mark.parametrize(
    ("cap", "concurrency", "timeout", "seconds", "pushed"),
    [(500, 6, 6, 504, True), (2000, 6, 6, 2004, False), (540, 1, 1, 540, True), (541, 1, 1, 541, False),
     (7, 6, 270, 540, True), (13, 6, 180.5, 541.5, False), (1, 64, 540, 540, True)],
)  # fmt: skip
def test_what_fits_a_push(house: House, cap: int, concurrency: int, timeout: float, seconds: float, pushed: bool) -> None:
    """R110: rounds of lines times the time of a line, against 540 seconds."""
    made = create(
        house.engine,
        {"name": "n", "segment_cap": cap, "line_concurrency": concurrency, "line_timeout_s": timeout} | FIELDS,
        OPERATOR,
        workspace="default",
    )
    found = resolve(house, str(made)).context
    assert (found.longest_seconds, found.may_be_pushed) == (seconds, pushed)


def test_the_built_in_contexts_and_a_push(house: House) -> None:
    """R110: letters and manuscripts may be pushed; newspapers are left to those who poll."""
    listed = in_transaction(house.engine, list_contexts)
    assert [(one.context.name, one.context.may_be_pushed) for one in listed] == [
        ("letter", True), ("manuscript", True), ("newspaper", False)
    ]  # fmt: skip


def test_what_is_listed_and_shown(house: House) -> None:
    """R166: all, or what one workspace sees; everybody's first. Shown is the workspace's own before everybody's."""
    other_workspace(house)
    own, theirs = context(house, "letter", "default"), context(house, "theirs", "other")

    def names(workspace: str | None) -> list[tuple[str, str | None]]:
        def listed(connection: Any) -> Any:
            return list_contexts(connection, workspace_id(connection, workspace) if workspace else None)

        return [(one.context.name, one.workspace) for one in in_transaction(house.engine, listed)]

    system = [(name, None) for name in ("letter", "manuscript", "newspaper")]
    assert names(None) == [*system, ("letter", "default"), ("theirs", "other")]
    assert names("default") == [*system, ("letter", "default")]
    assert names("other") == [*system, ("theirs", "other")]
    with house.engine.connect() as connection:
        owner, other = (workspace_id(connection, name) for name in ("default", "other"))
        assert load_context(connection, owner, "letter").context.context_id == own
        assert load_context(connection, None, "letter").context.context_id != own
        assert load_context(connection, other, "theirs").context.context_id == theirs
        assert "for a workspace's own, give --workspace" in refused(load_context, connection, None, "theirs").message
        assert "there is no context 'theirs'" in refused(load_context, connection, owner, "theirs").message


def read(house: House, name: str, workspace: str, text: str, corrected: str | None) -> None:
    """Have a page of one line read with a context, and corrected, if there is a text."""
    image = house.page(line_shape(20), workspace=workspace)
    house.job(image, context=name)
    house.complete(house.claim(), text)
    if corrected is not None:
        house.save(image.id, 2, corrected)


def test_totals_by_hand(house: House) -> None:
    """Pages read, how many were corrected, and the mean distance of those; each workspace has its own."""
    other_workspace(house)
    read(house, "letter", "default", "abcd", "abcx")  # 1 letter
    read(house, "letter", "default", "abcd", "ABCD")  # case does not count: 0
    read(house, "letter", "default", "abcd", "  a ")  # 3 letters; white space does not count
    read(house, "letter", "default", "abcd", None)
    read(house, "letter", "other", "abcd", "wxyz")  # all 4
    read(house, "newspaper", "default", "abcd", None)
    ids = dict(house.rows("SELECT name, id FROM contexts"))
    with house.engine.connect() as connection:
        owner, other = (workspace_id(connection, name) for name in ("default", "other"))
        default, press = ContextTotals("default", 4, 3, pytest.approx(4 / 3)), ContextTotals("other", 1, 1, 4)
        assert context_totals(connection, ids["letter"]) == [default, press]
        assert context_totals(connection, ids["letter"], owner) == [default]
        assert context_totals(connection, ids["letter"], other) == [press]
        assert context_totals(connection, ids["newspaper"]) == [ContextTotals("default", 1, 0, None)]
        assert context_totals(connection, ids["newspaper"], other) == []
        assert context_totals(connection, ids["manuscript"]) == []


def test_metadata_choose_a_batchs_context_and_stay_with_its_item(house: House, tmp_path: Path) -> None:
    """R166: what is said of a batch is its item's metadata; its context is the one that the rules say, unless one is named."""
    rule(house, "manuscript", "language eq la")
    known = {"language": "la", "year": 1250, "dated": True, "place": None}
    batch = house.batch({"a.png": png()}, tmp_path, metadata=known)
    assert ContextSnapshot.from_text(batch.context_snapshot).name == "manuscript"
    assert house.value("SELECT metadata FROM items") == known
    named = house.batch({"a.png": png()}, tmp_path, metadata=known, context="newspaper")
    assert ContextSnapshot.from_text(named.context_snapshot).name == "newspaper"
    plain = house.batch({"a.png": png()}, tmp_path)
    assert ContextSnapshot.from_text(plain.context_snapshot).name == "letter"
    assert len({batch.id, named.id, plain.id}) == 3


def test_other_metadata_are_another_request(house: House, tmp_path: Path) -> None:
    """R94: the same files with the same metadata, in whatever order, are the same batch; with others they are not."""
    files = {"a.png": png()}
    first = house.batch(files, tmp_path, metadata={"a": "1", "b": "2"}, context="letter")
    assert house.batch(files, tmp_path, metadata={"b": "2", "a": "1"}, context="letter").id == first.id
    others: list[dict[str, Any]] = [{}, {"a": "1"}, {"a": "1", "b": "3"}, {"a": 1, "b": "2"}]
    assert first.id not in {house.batch(files, tmp_path, metadata=other, context="letter").id for other in others}
    assert house.batch(files, tmp_path, metadata=None, context="letter").id == house.batch(files, tmp_path, metadata={}).id
    assert house.value("SELECT count(*) FROM items") == 5


def test_a_request_without_metadata_is_the_one_of_before_there_were_any(house: House, tmp_path: Path) -> None:
    """R94: batches of an earlier release are found again."""
    batch = house.batch({"a.png": png()}, tmp_path)
    owner, letter = house.rows("SELECT workspaces.id, contexts.id FROM workspaces, contexts WHERE contexts.name = 'letter'")[0]
    declared = [["a.png", len(png()), hashlib.sha256(png()).hexdigest()]]
    request = hashlib.sha256(dump_json([str(owner), str(letter), declared]).encode()).hexdigest()
    assert house.value("SELECT request_hash FROM ingest_batches WHERE id = :id", id=batch.id) == request


def test_what_is_not_flat_makes_no_batch(house: House, tmp_path: Path) -> None:
    """R85: nothing is made of a request with metadata that are none."""
    nested: Any = {"a": {"b": "c"}}
    refused(lambda: house.batch({"a.png": png()}, tmp_path, metadata=nested))
    assert house.rows("SELECT FROM items") == []


def test_a_page_asked_for_anew_goes_by_the_rules(house: House) -> None:
    """R166: where no job of the page is there yet, its item's metadata say how it is read; later it is read as the last time."""
    image = house.page()
    house.execute('UPDATE items SET metadata = \'{"language": "la"}\'')
    rule(house, "manuscript", "language eq la")
    first = request_job(house.engine, image.id, None, 3, Operator("anna"))
    house.execute("DELETE FROM context_selection_rules")
    assert request_job(house.engine, image.id, None, 3, Operator("anna")).job_id == first.job_id
    name = "SELECT contexts.name FROM transcription_jobs AS job JOIN contexts ON contexts.id = context_id WHERE job.id = :id"
    assert house.value(name, id=first.job_id) == "manuscript"
    named = request_job(house.engine, image.id, "newspaper", 3, Operator("anna"))
    assert house.value(name, id=named.job_id) == "newspaper"


@pytest.mark.parametrize("field", ["transcription_provider", "transcription_model"])
def test_half_a_transcriber_is_none(house: House, field: str) -> None:
    """R166: with only one of both, whether it is registered could not be told."""
    error = refused(edit_context, house.engine, "letter", {field: "local"}, OPERATOR)
    assert error.message == "a transcriber is named by its provider and its model together"
