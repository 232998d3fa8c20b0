"""Running the `scribe` command as a person would."""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, SHARED

SCRIBE = Path(sys.executable).with_name("scribe")
TIMEOUT_SECONDS = 600


def scribe(environment: dict[str, str], *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its output."""
    return subprocess.run(
        [SCRIBE, *arguments], env=environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL
    )


def scribe_json(environment: dict[str, str], *arguments: str | Path) -> Any:
    """Run a command that succeeds and return the JSON document it prints."""
    done = scribe(environment, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def assert_no_worse_than_baseline(exports: Path, pages: Sequence[Path]) -> None:
    """Compare exported pages with the table of what the bare engines give, by the benchmark that does so."""
    baseline = SHARED / "pages" / "BASELINE.tsv"
    compared = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "accuracy.py", exports, *pages, "--baseline", baseline],
        capture_output=True,
        text=True,
    )
    print(compared.stdout)  # noqa: T201 - shown when the proof fails
    assert compared.returncode == 0, compared.stderr
