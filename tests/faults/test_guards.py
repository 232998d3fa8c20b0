"""Guards are there for a reason: whichever of them is left out, some test fails.

The guards in the code are listed in `guards.toml`; constraints, unique indexes and triggers come from the catalog.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.houses import House
from tests.proofs import seeded, size_of, tell
from tests.store.refusals import OPENING, TOUCHING
from tests.store.test_checks import CONSTRAINTS, TRIGGERS, removal

# What a copy needs for the store's tests to run in it.
SOURCES = (
    "scribe_pipeline", "assets", "resources", "sensors", "commands", "migrations", "tests", "definitions.py", "pyproject.toml",
)  # fmt: skip
LINKED = ("samples",)
LAST_MIGRATION = max((ROOT / "migrations" / "versions").glob("*.sql")).relative_to(ROOT)
# A test that waits for ever because a guard is gone would have failed, but says nothing.
SECONDS = 900


@dataclass(frozen=True)
class Guard:
    """Something in a file that may be left out: `text`, or all that follows the file if it is empty, and what misses it."""

    name: str
    file: str
    text: str
    without: str
    tests: tuple[str, ...]


def guards_in_code() -> list[Guard]:
    """The guards of `guards.toml`."""
    listed = tomllib.loads((ROOT / "tests" / "guards.toml").read_text())["guard"]
    return [Guard(**entry | {"tests": tuple(entry["tests"])}) for entry in listed]


def guards_in_schema(house: House) -> list[Guard]:
    """A guard for each constraint, unique index and trigger: the last migration removes it again."""
    found = []
    for name in (*CONSTRAINTS, *TRIGGERS):
        test = "test_each_constraint_refuses" if name in CONSTRAINTS else "test_each_trigger_refuses"
        if name in TOUCHING:
            test = "test_each_change_says_when_it_was_made"
        if name in OPENING:
            test = "test_a_new_workspace_has_its_quota"
        killer = f"tests/store/test_checks.py::{test}[{name}]"
        found.append(Guard(name, str(LAST_MIGRATION), "", f"\n{removal(house, name)};\n", (killer,)))
    return found


def mutant(guard: Guard, folder: Path) -> None:
    """Make a copy of the sources that lacks the guard."""
    copied(folder)
    path = folder / guard.file
    source = path.read_text()
    path.write_text(source.replace(guard.text, guard.without) if guard.text else source + guard.without)


def copied(folder: Path) -> None:
    """Copy the sources into a new folder."""
    folder.mkdir()
    for name in SOURCES:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name)
        else:
            shutil.copy2(source, folder / name)
    for name in LINKED:
        (folder / name).symlink_to(ROOT / name)


def run_tests(folder: Path, tests: list[str]) -> subprocess.CompletedProcess[str]:
    """Run tests in a copy of the sources."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SCRIBE_")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        cwd=folder,
        env=environment | {"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )


def survives(guard: Guard, folder: Path) -> str | None:
    """Leave a guard out and run its tests; return what was wrong unless one of them has failed."""
    mutant(guard, folder)
    done = run_tests(folder, list(guard.tests))
    shutil.rmtree(folder)
    # an error in a fixture, or tests that are not there, prove nothing
    if done.returncode == pytest.ExitCode.TESTS_FAILED and re.search(r"^\d+ failed", done.stdout.splitlines()[-1]):
        return None
    return f"{guard.name}: exit code {done.returncode}\n{done.stdout[-1500:]}{done.stderr[-500:]}"


def test_every_listed_guard_is_there() -> None:
    """An entry of the list whose text is not in its file exactly once is stale."""
    guards = guards_in_code()
    stale = [guard.name for guard in guards if (ROOT / guard.file).read_text().count(guard.text) != 1]
    assert stale == []
    assert len({guard.name for guard in guards}) == len(guards)


@pytest.mark.proof
def test_no_guard_is_there_for_nothing(house: House, tmp_path: Path) -> None:
    """R97, R12, R94: without any one guard its tests fail; with all of them they pass."""
    guards = guards_in_code() + guards_in_schema(house)
    sampled = seeded("guards").sample(guards, min(size_of("guards"), len(guards)))
    copied(tmp_path / "whole")
    with ThreadPoolExecutor(2) as pool:
        whole = pool.submit(run_tests, tmp_path / "whole", sorted({test for guard in sampled for test in guard.tests}))
        found = list(pool.map(lambda numbered: survives(numbered[1], tmp_path / str(numbered[0])), enumerate(sampled)))
    assert whole.result().returncode == pytest.ExitCode.OK, whole.result().stdout[-3000:]
    survivors = [said for said in found if said]
    tell(f"guards: {len(guards)} in the list, {len(sampled)} sampled, {len(sampled) - len(survivors)} killed")
    assert not survivors, "\n".join(survivors)
