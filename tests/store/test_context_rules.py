"""Which context a request gets: by name, by the workspace's rules, by default; and what may be a rule or metadata."""

from typing import Any
from uuid import UUID

import pytest

from scribe_pipeline.contexts import (
    Condition,
    Metadata,
    Resolution,
    add_rule,
    check_metadata,
    create_context,
    list_rules,
    remove_rule,
    resolve_context,
)
from scribe_pipeline.database import dump_json, in_transaction
from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.workspaces import workspace_id
from tests.conftest import broken_invariants
from tests.houses import House

OPERATOR = Operator("anna@archive", "a new fonds")
FIELDS = {
    "segmentation_model": "kraken-blla",
    "transcription_provider": "local",
    "transcription_model": "PP-OCRv6_rec_small",
}  # fmt: skip


def resolve(house: House, name: str | None = None, metadata: Metadata | None = None, workspace: str = "default") -> Resolution:
    """The context that a request gets."""
    return in_transaction(
        house.engine,
        lambda connection: resolve_context(connection, workspace_id(connection, workspace), name, metadata or {}),
    )


def chosen(house: House, metadata: Metadata, workspace: str = "default") -> str:
    """The name of the context that an item with these metadata gets."""
    return resolve(house, None, metadata, workspace).context.name


def rule(house: House, context: str, *conditions: str, priority: int = 0, workspace: str = "default") -> UUID:
    """Add a rule."""
    return add_rule(house.engine, workspace, context, [*map(Condition.parse, conditions)], priority, OPERATOR)


def context(house: House, name: str, workspace: str | None = None, default: bool = False) -> UUID:
    """Add a context that reads as the built-in ones do."""
    return create_context(house.engine, {"name": name} | FIELDS, OPERATOR, workspace=workspace, default=default)


def other_workspace(house: House) -> None:
    """Add a workspace `other`."""
    house.execute("INSERT INTO workspaces (id, name) VALUES (gen_random_uuid(), 'other')")


def refused(wanted: Any, *arguments: Any) -> ScribeError:
    """What a call is refused with: one line about an argument."""
    with pytest.raises(ScribeError) as caught:
        wanted(*arguments)
    assert caught.value.category is Category.INVALID_ARGUMENT
    assert "\n" not in caught.value.message
    return caught.value


def test_the_context_that_is_named_wins(house: House) -> None:
    """R166: whatever rules and defaults say, by its name or its id, and with the reason told."""
    own = context(house, "own", "default", default=True)
    rule(house, "newspaper", "kind eq paper")
    for name in ("own", str(own)):
        found = resolve(house, name, {"kind": "paper"})
        assert (found.context.context_id, found.reason, found.rule_id) == (own, "named", None)
    assert resolve(house, "letter", {"kind": "paper"}).context.name == "letter"


def test_rules_then_the_workspaces_default_then_the_systems(house: House) -> None:
    """R166: each comes into its own when those before it say nothing, and the reason is told."""
    assert (chosen(house, {"kind": "paper"}), resolve(house).reason) == ("letter", "system default")
    context(house, "own", "default", default=True)
    assert (chosen(house, {"kind": "paper"}), resolve(house).reason) == ("own", "workspace default")
    paper = rule(house, "newspaper", "kind eq paper")
    found = resolve(house, None, {"kind": "paper"})
    assert (found.context.name, found.reason, found.rule_id) == ("newspaper", "rule", paper)
    assert chosen(house, {"kind": "letter"}) == "own"
    assert chosen(house, {}) == "own"


def test_without_any_default_a_name_is_asked_for(house: House) -> None:
    house.execute("UPDATE contexts SET is_default = false")
    assert "no context is the default one: name one; there are: letter, manuscript, newspaper" in refused(resolve, house).message


def test_names_of_the_workspace_go_before_those_of_the_system(house: House) -> None:
    """R166: a workspace may have its own context of a name that the system has; others go on with the system's."""
    other_workspace(house)
    own = context(house, "letter", "default")
    assert resolve(house, "letter").context.context_id == own
    assert resolve(house, "letter", workspace="other").context.context_id != own
    rule(house, "letter", "kind eq letter")
    assert resolve(house, None, {"kind": "letter"}).context.context_id == own


def test_the_highest_priority_is_tried_first(house: House) -> None:
    """R166: not the rule that was made first; one that does not hold is passed over."""
    rule(house, "letter", "kind starts_with n", priority=-1)
    rule(house, "manuscript", "kind eq notes", priority=5)
    rule(house, "newspaper", "kind starts_with n", priority=2)
    with house.engine.connect() as connection:
        owner = workspace_id(connection, "default")
        assert [(one.context, one.priority) for one in list_rules(connection, owner)] == [
            ("manuscript", 5), ("newspaper", 2), ("letter", -1)
        ]  # fmt: skip
    assert [chosen(house, {"kind": kind}) for kind in ("notes", "news")] == ["manuscript", "newspaper"]


@pytest.mark.parametrize("smaller", ["manuscript", "newspaper"])
def test_among_equals_the_smaller_id_is_tried_first(house: House, smaller: str) -> None:
    """R166: whichever was written first."""
    for name in ("manuscript", "newspaper"):
        house.execute(
            """INSERT INTO context_selection_rules (id, workspace_id, context_id, priority, conditions)
               SELECT CAST(:id AS uuid), workspaces.id, contexts.id, 3, '[{"field": "a", "operator": "eq", "value": "b"}]'
               FROM workspaces, contexts WHERE contexts.name = :name""",
            id=f"01900000-0000-7000-8000-0000000000{'01' if name == smaller else '02'}",
            name=name,
        )
    assert chosen(house, {"a": "b"}) == smaller


def test_all_conditions_have_to_hold(house: House) -> None:
    rule(house, "manuscript", "language eq la", "year starts_with 12", "shelf neq X")
    whole = {"language": "la", "year": "1250", "shelf": "A"}
    assert chosen(house, whole) == "manuscript"
    for change in ({"language": "de"}, {"year": "1350"}, {"shelf": "X"}):
        assert chosen(house, whole | change) == "letter"
    for field in whole:
        assert chosen(house, {name: value for name, value in whole.items() if name != field}) == "letter"


@pytest.mark.parametrize(
    ("comparison", "yes", "no"),
    [
        ("eq abc", ["abc"], ["ab", "abcd", "ABC", " abc", ""]),
        ("neq abc", ["ab", "ABC", ""], ["abc"]),
        ("contains bc", ["abcd", "bc"], ["b c", "BC", ""]),
        ("starts_with ab", ["ab", "abc"], ["cab", "Abc", ""]),
        ("ends_with bc", ["bc", "abc"], ["bcd", "aBC", ""]),
        ("eq two words", ["two words"], ["two", "words"]),
        ("contains %", ["5 %"], ["5"]),
        ("eq 1", [1, "1"], [1.0, "1.0", True, 11]),
        ("eq 1.5", [1.5], [1, 15]),
        ("starts_with 12", [1250, 12], [21]),
        ("eq true", [True, "true"], [1, "True", False]),
        ("eq 0.00001", [1e-05], [0]),
        ("eq 100000000000000000000", [1e20, 10**20], [10**19]),
        ("contains ß", ["Straße"], ["Strasse"]),
    ],
)
def test_each_operator_compares_texts(house: House, comparison: str, yes: list[Any], no: list[Any]) -> None:
    """Numbers and truth values are compared as the database writes them, before they are stored and after."""
    condition = Condition.parse(f"field {comparison}")
    for holds, value in [(True, value) for value in yes] + [(False, value) for value in no]:
        metadata = {"field": value, "other": "abc"}
        stored = house.value("SELECT CAST(:metadata AS jsonb)", metadata=dump_json(metadata))
        assert condition.holds(metadata) is condition.holds(stored) is holds, value


@pytest.mark.parametrize("comparison", ["eq y", "neq x", "contains y", "starts_with y", "ends_with y"])
@pytest.mark.parametrize("metadata", [{}, {"Field": "y"}, {"other": "y"}, {"field": None}])
def test_a_missing_field_never_matches(house: House, comparison: str, metadata: Metadata) -> None:
    """Not even where it is to be different; null is no value."""
    rule(house, "manuscript", f"field {comparison}")
    assert chosen(house, metadata) == "letter"
    assert chosen(house, {"field": "y"}) == "manuscript"


def test_rules_and_contexts_of_others_are_not_seen(house: House) -> None:
    """R166: a context is named, chosen by a rule, or a default only in its own workspace; a rule is only tried there."""
    other_workspace(house)
    private = context(house, "private", "other", default=True)
    rule(house, "private", "kind eq paper", workspace="other")
    assert chosen(house, {"kind": "paper"}, "other") == chosen(house, {}, "other") == "private"
    assert chosen(house, {"kind": "paper"}) == chosen(house, {}) == "letter"
    for name in ("private", str(private)):
        assert refused(resolve, house, name).message.endswith("there are: letter, manuscript, newspaper")
        assert "there is no context" in refused(rule, house, name, "kind eq paper").message


def test_rules_of_others_are_not_tried(house: House) -> None:
    """R166: be it for a context that all see."""
    other_workspace(house)
    rule(house, "newspaper", "kind eq paper", workspace="other")
    assert (chosen(house, {"kind": "paper"}, "other"), chosen(house, {"kind": "paper"})) == ("newspaper", "letter")
    with house.engine.connect() as connection:
        assert list_rules(connection, workspace_id(connection, "default")) == []


def test_a_forged_rule_chooses_nothing_and_is_found(house: House, database_url: str) -> None:
    """R83, R166: one for another workspace's context, or for none, is passed over, and the audit tells of it."""
    other_workspace(house)
    private = context(house, "private", "other")
    rule(house, "newspaper", "kind eq paper")
    for forged in (private, UUID(int=0)):
        house.execute(
            """INSERT INTO context_selection_rules (id, workspace_id, context_id, priority, conditions)
               SELECT gen_random_uuid(), id, :context, 9, '[{"field": "kind", "operator": "eq", "value": "paper"}]'
               FROM workspaces WHERE name = 'default'""",
            context=forged,
        )
    assert chosen(house, {"kind": "paper"}) == "newspaper"
    ((check, found),) = broken_invariants(database_url).items()
    assert check == "I17 context_selection_rules: no context of its workspace, or of all"
    assert {row[1] for row in found} == {private, UUID(int=0)}
    house.empty()


def test_rules_are_audited_and_go_for_good(house: House) -> None:
    """R34: who added or removed a rule, which, of which context, and why; what is not there cannot be removed."""
    made = rule(house, "newspaper", "kind eq paper")
    remove_rule(house.engine, made, OPERATOR)
    assert chosen(house, {"kind": "paper"}) == "letter"
    newspaper = house.value("SELECT id FROM contexts WHERE name = 'newspaper'")
    entries = house.rows("SELECT action, subject, actor, reason FROM operator_audit ORDER BY created_at")
    assert [tuple(entry) for entry in entries] == [
        (f"rule {did} {made}", f"context {newspaper}", OPERATOR.name, OPERATOR.reason) for did in ("add", "remove")
    ]
    with pytest.raises(ScribeError, match="there is no rule") as caught:
        remove_rule(house.engine, made, OPERATOR)
    assert caught.value.category is Category.NOT_FOUND


@pytest.mark.parametrize(
    "text",
    ["", "kind", "kind eq", "kind neq ", "kind like x", "kind EQ x", " eq x", f"{'f' * 256} eq x", f"f eq {'v' * 1025}"],
)
def test_what_is_no_condition_is_refused(text: str) -> None:
    """R166: nor is one without a value, which a shell makes of a variable that is not set: it would hold for everything."""
    assert "eq, neq, contains, starts_with, ends_with" in refused(Condition.parse, text).message


@pytest.mark.parametrize(("conditions", "fine"), [(0, False), (1, True), (32, True), (33, False)])
def test_a_rule_has_one_to_thirty_two_conditions(house: House, conditions: int, fine: bool) -> None:
    said = [f"field neq {number}" for number in range(conditions)]
    if fine:
        rule(house, "newspaper", *said)
        assert chosen(house, {"field": "x"}) == "newspaper"
        assert chosen(house, {"field": str(conditions - 1)}) == "letter"
    else:
        assert f"1 to 32 conditions, and not {conditions}" in refused(rule, house, "newspaper", *said).message
        assert house.rows("SELECT FROM context_selection_rules") == []


def test_a_priority_fits_its_column(house: House) -> None:
    rule(house, "newspaper", "kind eq paper", priority=2**31 - 1)
    assert "a priority is a number up to" in refused(lambda: rule(house, "letter", "a eq b", priority=2**31)).message


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ([], "flat JSON object"),
        ("a=b", "flat JSON object"),
        ({"a": {"b": "c"}}, "'a' is neither"),
        ({"a": ["b"]}, "'a' is neither"),
        ({"a": float("nan")}, "'a' is neither"),
        ({"a": float("inf")}, "'a' is neither"),
        ({"a": b"b"}, "'a' is neither"),
        ({"a": 2**63}, "'a' is neither"),
        ({"a": -(2**63)}, "'a' is neither"),
        ({"a": 10**5000}, "'a' is neither"),
        ({"a": "\0"}, "'a' is neither"),
        ({"a": "\udcff"}, "'a' is neither"),
        ({"": "b"}, "'' is no name"),
        ({1: "b"}, "1 is no name"),
        ({"a\0": "b"}, "is no name"),
    ],
)
def test_metadata_are_flat(metadata: object, named: str) -> None:
    """Whatever is not a flat object of scalars that can be stored is refused, and the field at fault is named."""
    assert named in refused(check_metadata, metadata).message


def test_flat_metadata_stay_as_they_are() -> None:
    flat = {"text": "", "number": 1, "most": 2**63 - 1, "part": 0.5, "yes": True, "nothing": None}
    assert check_metadata(flat) == flat
