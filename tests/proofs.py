"""The sizes of proofs, the seed that replays one, and what to say of the item that failed."""

import os
import random
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

# What the proofs of this run have counted; shown at its end.
told: list[str] = []

_TABLE = Path(__file__).with_name("sizes.toml")


def size_of(proof: str) -> int:
    """Return how large the proof is to be in this run."""
    wanted = os.environ.get("SCRIBE_PROOF_SIZE", "test")
    size: int = int(wanted) if wanted.isdigit() else tomllib.loads(_TABLE.read_text())[proof][wanted]
    return size


def seed_of(proof: str) -> int:
    """Return the proof's seed and print it; SCRIBE_PROOF_SEED gives it again."""
    seed = int(os.environ.get("SCRIBE_PROOF_SEED", random.SystemRandom().randrange(10**9)))
    print(f"{proof}: SCRIBE_PROOF_SEED={seed}")  # noqa: T201 - shown when the proof fails
    return seed


def seeded(proof: str) -> random.Random:
    """Return the proof's random numbers, from its seed."""
    return random.Random(seed_of(proof))


def numbers_of(proof: str) -> list[int]:
    """Return the numbers of a proof's items, where each is made from the seed and its number; SCRIBE_PROOF_ONLY names one."""
    return chosen_of(size_of(proof))


def chosen_of(count: int) -> list[int]:
    """Return the numbers of so many items; SCRIBE_PROOF_ONLY names one."""
    only = os.environ.get("SCRIBE_PROOF_ONLY")
    return list(range(count)) if only is None else [int(only)]


def seeded_item(seed: int, name: object) -> random.Random:
    """Return the random numbers of one item of a proof, the same whether or not others came before it."""
    return random.Random(f"{seed}/{name}")


def tell(line: str) -> None:
    """Have a line about a proof shown at the end of the run."""
    told.append(line)


@contextmanager
def named(item: str) -> Iterator[None]:
    """Have whatever fails in here say in which item of the proof it did."""
    try:
        yield
    except BaseException as error:
        error.add_note(item)
        raise


def living(processes: Iterable[psutil.Process], seconds: float = 60) -> list[psutil.Process]:
    """Wait for the end of processes, and return those that have not come to it; one that nobody has buried has ended, too."""
    until = time.monotonic() + seconds
    while (left := [process for process in processes if _lives(process)]) and time.monotonic() < until:
        time.sleep(0.02)
    return left


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_until(condition: Callable[[], object], what: str, seconds: float = 300) -> None:
    """Look again and again whether the condition holds; fail, saying what did not come, if it takes too long."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} seconds"
        time.sleep(0.02)
