"""Contexts and rules on the command line: made, shown, changed, resolved, and refused in one line."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.commands import SCRIBE, scribe, scribe_json
from tests.houses import House, png

NOBODY = "01900000-0000-7000-8000-00000000dead"
ENGINES = ("--segmentor", "kraken-blla", "--transcriber", "local/PP-OCRv6_rec_small")
# Without a key: whether it is there is the worker's affair.
REGISTRY = """
[[model]]
id = "charters-2"
kind = "transcriber"
engine = "gemini"
name = "gemini-flash"
"""


def done(operator: dict[str, str], *arguments: str | Path) -> str:
    """Run a command that succeeds, and return what it prints."""
    ended = scribe(operator, *arguments)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_a_context_from_its_making_to_its_edit(house: House, operator: dict[str, str], tmp_path: Path) -> None:
    """R110, R166: what is said of it is shown, with whether a page of it fits a push, and with who did what and why."""
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("Transcribe.\nKeep abbreviations.\n")
    limits = ("--segment-cap", "700", "--concurrency", "4", "--timeout", "2.5")
    made = done(
        operator, "context", "create", "charters", *ENGINES, "--prompt-file", prompt, "--temperature", "0.5", *limits,
        "--description", "8th century", "--workspace", "default", "--default", "--reason", "a new fonds",
    ).strip()  # fmt: skip
    shown = scribe_json(operator, "context", "show", "charters", "--workspace", "default")
    expected: dict[str, Any] = {
        "context_id": made, "name": "charters", "workspace": "default", "is_default": True, "description": "8th century",
        "segmentation_model": "kraken-blla", "transcription_provider": "local", "transcription_model": "PP-OCRv6_rec_small",
        "temperature": 0.5, "system_prompt": "Transcribe.\nKeep abbreviations.", "segment_cap": 700, "line_concurrency": 4,
        "line_timeout_s": 2.5, "longest_seconds": 437.5, "may_be_pushed": True, "totals": [],
    }  # fmt: skip
    assert {name: value for name, value in shown.items() if not name.endswith("_at")} == expected
    said = ("--timeout", "6", "--temperature", "none", "--prompt", "", "--no-default", "--reason", "slow answers")
    edited = done(operator, "context", "edit", "charters", "--workspace", "default", *said)
    assert edited == "changed temperature, system_prompt, line_timeout_s, is_default\n"
    again = done(operator, "context", "edit", "charters", "--workspace", "default", "--timeout", "6")
    assert again == "it is so already\n"
    text = done(operator, "context", "show", "charters", "--workspace", "default")
    assert "longest page  1,050 s (polled for only: a push waits 540 s)" in text
    assert "700 a page at most, 4 at once, 6 s each" in text
    assert "default       no" in text
    assert "prompt" not in text.split("audit")[0] and "temperature" not in text.split("audit")[0]
    assert [line.split(": ", 1)[1] for line in text.split("audit\n")[1].splitlines()] == [
        "context create (a new fonds)",
        "context edit: temperature, system_prompt, line_timeout_s, is_default (slow answers)",
    ]


def test_of_two_of_one_name_at_once_one_is_made(house: House, operator: dict[str, str]) -> None:
    """R166: whichever process is first; the other says in a line what there is already."""
    command = [SCRIBE, "context", "create", "charters", *ENGINES, "--workspace", "default", "--default"]
    both = [subprocess.Popen(command, env=operator, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    # the one that has printed something comes first
    (made, nothing), (unsaid, told) = sorted((process.communicate(timeout=300) for process in both), reverse=True)
    assert sorted(process.returncode for process in both) == [0, 1]
    assert house.rows("SELECT CAST(id AS text), is_default FROM contexts WHERE name = 'charters'") == [(made.strip(), True)]
    assert (nothing, unsaid, told.count("\n")) == ("", "", 1)
    assert "already" in told or "meanwhile" in told


def test_contexts_are_listed(house: House, operator: dict[str, str]) -> None:
    """R157, R166: the built-in ones, and one's own beside them."""
    done(operator, "context", "create", "own", *ENGINES, "--workspace", "default", "--default")
    listed = scribe_json(operator, "context", "list")
    assert [(one["name"], one["workspace"], one["is_default"], one["may_be_pushed"]) for one in listed] == [
        ("letter", None, True, True), ("manuscript", None, False, True), ("newspaper", None, False, False),
        ("own", "default", True, True),
    ]  # fmt: skip
    table = done(operator, "context", "list", "--workspace", "default").splitlines()
    assert len(table) == 5
    assert table[1].split()[:7] == ["letter", "(all)", "yes", "kraken-blla", "local/PP-OCRv6_rec_small", "500", "504"]


def test_totals_are_shown(house: House, operator: dict[str, str]) -> None:
    image = house.page()
    house.job(image)
    house.complete(house.claim(), "abc")
    house.save(image.id, 2, "abd")
    assert scribe_json(operator, "context", "show", "letter")["totals"] == [
        {"workspace": "default", "total_runs": 1, "corrected_runs": 1, "avg_levenshtein_distance": 1.0}
    ]
    assert done(operator, "context", "show", "letter").splitlines()[-1].split() == ["default", "1", "1", "1.0"]


def test_rules_choose_for_ingest(house: House, operator: dict[str, str], tmp_path: Path) -> None:
    """R166: added, listed in order, tried by `resolve` and by `ingest`, and removed."""
    first = done(
        operator, "context", "rule", "add", "manuscript", "--when", "language eq la", "--when", "year starts_with 12"
    ).strip()
    second = done(operator, "context", "rule", "add", "newspaper", "--when", "kind eq paper", "--priority", "3").strip()
    listed = scribe_json(operator, "context", "rule", "list")
    assert [(one["id"], one["context"], one["priority"]) for one in listed] == [(second, "newspaper", 3), (first, "manuscript", 0)]
    assert listed[1]["conditions"][1] == {"field": "year", "operator": "starts_with", "value": "12"}
    assert "language eq la and year starts_with 12" in done(operator, "context", "rule", "list")
    known = ("--metadata", "language=la", "--metadata", "year=1250", "--metadata", "note=a=b")
    assert done(operator, "context", "resolve", *known) == f"manuscript (rule {first})\n"
    resolved = scribe_json(operator, "context", "resolve", *known, "--metadata", "kind=paper")
    assert (resolved["context"], resolved["reason"], resolved["rule"]) == ("newspaper", "rule", second)
    assert done(operator, "context", "resolve", "--context", "letter", *known) == "letter (named)\n"
    assert done(operator, "context", "resolve") == "letter (system default)\n"
    (tmp_path / "a.png").write_bytes(png())
    batch = done(operator, "ingest", tmp_path / "a.png", *known).strip()
    (row,) = house.rows(
        """SELECT item.metadata, contexts.name, CAST(batch.id AS text) AS batch, CAST(item.id AS text) AS item
           FROM ingest_batches AS batch JOIN contexts ON contexts.id = batch.context_id
           JOIN items AS item ON item.id = batch.item_id"""
    )
    assert (row.metadata, row.name, row.batch) == ({"language": "la", "year": "1250", "note": "a=b"}, "manuscript", batch)
    assert "metadata   note = a=b\n" in done(operator, "item", "show", row.item)
    assert scribe_json(operator, "item", "show", row.item)["metadata"] == row.metadata
    assert done(operator, "context", "rule", "remove", first, "--reason", "too wide") == "removed\n"
    assert done(operator, "context", "resolve", *known) == "letter (system default)\n"
    assert done(operator, "context", "show", "manuscript").splitlines()[-1].endswith(f"rule remove {first} (too wide)")


def test_a_model_and_a_rule_are_all_it_takes(house: House, operator: dict[str, str], tmp_path: Path) -> None:
    """R156, R166: a model that is added to the registry's file can be named beside any segmentor, and a rule gives it its items.

    Without its entry it is refused; nothing of the schema or the program changes. Its key need not be here.
    """
    registry = tmp_path / "models.toml"
    registry.write_text("")
    environment = operator | {"SCRIBE_MODELS_FILE": str(registry)}
    environment.pop("GEMINI_API_KEY", None)
    create = ("context", "create", "charters", "--segmentor", "kraken-blla-columns", "--transcriber", "gemini/charters-2")
    before = scribe(environment, *create)
    assert (before.returncode, before.stdout) == (2, "")
    assert before.stderr == "scribe: 'gemini/charters-2' is not in the model registry; it has: local\n"
    registry.write_text(REGISTRY)
    done(environment, *create)
    done(environment, "context", "rule", "add", "charters", "--when", "kind eq charter")
    resolved = scribe_json(environment, "context", "resolve", "--metadata", "kind=charter")
    assert resolved["context"] == "charters"
    shown = scribe_json(environment, "context", "show", "charters")
    assert (shown["segmentation_model"], shown["transcription_provider"], shown["transcription_model"]) == (
        "kraken-blla-columns", "gemini", "charters-2"
    )  # fmt: skip
    done(environment, "context", "edit", "charters", "--segmentor", "kraken-blla")
    assert scribe_json(environment, "context", "show", "charters")["transcription_model"] == "charters-2"
    done(environment, "context", "edit", "charters", "--transcriber", "local/PP-OCRv6_rec_small")
    assert scribe_json(environment, "context", "show", "charters")["segmentation_model"] == "kraken-blla"


def test_with_a_registry_that_cannot_be_read_no_context_is_made(house: House, operator: dict[str, str], tmp_path: Path) -> None:
    """R166: it says nothing of what it has, so that nothing is taken for registered; nor for not registered."""
    environment = operator | {"SCRIBE_MODELS_FILE": str(tmp_path / "models.toml")}
    (tmp_path / "models.toml").write_text("[[model")
    for transcriber in ("gemini/charters-2", "local/PP-OCRv6_rec_small"):
        ended = scribe(environment, "context", "create", "charters", "--segmentor", "kraken-blla", "--transcriber", transcriber)
        assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (1, "", 1)
        assert ended.stderr.startswith(f"scribe: SCRIBE_MODELS_FILE, {tmp_path}/models.toml, is no TOML")
    assert house.rows("SELECT FROM contexts WHERE name = 'charters'") == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["context", "show", "diary"], 2, "no context 'diary' is everybody's; there are: letter, manuscript, newspaper"),
        (["context", "list", "--workspace", "nowhere"], 2, "there is no workspace 'nowhere'"),
        (["context", "create", "letter", *ENGINES], 1, "there is a context of that name already"),
        (["context", "create", "new", "--segmentor", "kraken-blla", "--transcriber", "local"], 2, "not of the form PROVIDER/MODEL"),
        (["context", "create", "new"], 2, "--segmentor"),
        (["context", "create", "new", *ENGINES, "--temperature", "warm"], 2, "the context's temperature is not valid"),
        (["context", "create", " new", *ENGINES], 2, "the context's name is not valid: write one line without control characters"),
        (["context", "create", "new", *ENGINES, "--prompt", "a", "--prompt-file", "b"], 2, "and not from both"),
        (["context", "create", "new", *ENGINES, "--prompt-file", "/nowhere"], 2, "/nowhere cannot be read"),
        (["context", "edit", "diary", "--timeout", "1"], 2, "the system has no context 'diary' of its own"),
        (["context", "edit", "letter", "--no-default"], 1, "the system has always a default"),
        (["context", "resolve", "--metadata", "la"], 2, "--metadata la is not of the form NAME=VALUE"),
        (["context", "resolve", "--metadata", "a=b", "--metadata", "a=c"], 2, "--metadata a is said twice"),
        (["context", "rule", "add", "letter", "--when", "language is la"], 2, "is no condition: write FIELD OPERATOR VALUE"),
        (["context", "rule", "add", "diary", "--when", "language eq la"], 2, "there is no context 'diary'"),
        (["context", "rule", "add", "letter"], 2, "--when"),
        (["context", "rule", "remove", "7"], 2, "7 is no rule's id: scribe context rule list tells them"),
        (["context", "rule", "remove", NOBODY], 1, "there is no rule"),
        (["ingest", ".", "--metadata", "la"], 2, "--metadata la is not of the form NAME=VALUE"),
        (["run", ".", "--metadata", "la"], 2, "--metadata la is not of the form NAME=VALUE"),
    ],
)
def test_bad_requests_get_one_line(operator: dict[str, str], arguments: list[str], code: int, words: str) -> None:
    """R29: a bad request is answered by what is wrong and with the right exit code, and never by a traceback."""
    ended = scribe(operator, *arguments)
    assert (ended.returncode, ended.stdout) == (code, ""), ended.stderr
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr
