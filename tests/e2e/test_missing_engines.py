"""`scribe run` with an engine that is not as it was registered, as a person runs it: one line says what is wrong."""

from pathlib import Path
from typing import Any

import pytest

from tests.commands import scribe, scribe_json
from tests.conftest import ROOT
from tests.registries import file_entry, registry_text

LETTER = ROOT / "samples" / "letter.jpg"
LOCAL = ("--segmentor", "kraken-blla", "--transcriber", "local/PP-OCRv6_rec_small")


@pytest.fixture
def registering(environment: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment of commands that work on a new database, with a registry in which two models are not fit for use."""
    (tmp_path / "lines.safetensors").write_bytes(b"somebody else's")
    changed = file_entry(tmp_path / "lines.safetensors", kind="segmentor", sha256="0" * 64)
    without_key: dict[str, Any] = {"id": "oa", "kind": "transcriber", "engine": "openai", "key_variable": "GOOD"}
    (tmp_path / "models.toml").write_text(registry_text(changed, without_key))
    own = environment | {"SCRIBE_MODELS_FILE": str(tmp_path / "models.toml")}
    assert scribe(own, "db", "upgrade").returncode == 0
    return own


def test_a_file_that_a_worker_process_refuses(registering: dict[str, str], tmp_path: Path) -> None:
    """R166: what went wrong in a process of the pool is told by its sentence, and not by where it was raised."""
    engines = ("--segmentor", "lines", *LOCAL[2:])
    assert scribe(registering, "context", "create", "changed", *engines).returncode == 0
    done = scribe(registering, "run", LETTER, "--context", "changed")
    assert (done.returncode, done.stdout) == (1, "")
    problem = f"the file of the model lines, {tmp_path}/lines.safetensors, is not the one registered: its SHA-256 differs"
    assert done.stderr.splitlines()[-1] == f"scribe: {problem}"
    assert "Traceback" not in done.stderr


def test_a_key_that_is_missing_ends_a_run_at_once(registering: dict[str, str]) -> None:
    """R21: whether the context is named or chosen, before a batch is made; what only hands over makes one all the same."""
    engines = (*LOCAL[:2], "--transcriber", "openai/oa")
    assert scribe(registering, "context", "create", "keyed", *engines).returncode == 0
    assert scribe(registering, "context", "rule", "add", "keyed", "--when", "kind eq letter").returncode == 0
    for how in (("--context", "keyed"), ("--metadata", "kind=letter")):
        done = scribe(registering, "run", LETTER, *how)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", "scribe: the model oa needs a key: set GOOD\n")
    assert scribe_json(registering, "batch", "list") == []
    assert scribe(registering, "ingest", LETTER, "--context", "keyed").returncode == 0
    done = scribe(registering, "run", LETTER, "--context", "keyed")
    assert (done.returncode, done.stderr) == (1, "scribe: the model oa needs a key: set GOOD\n")
