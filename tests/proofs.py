"""The sizes of proofs, and the seed that replays one."""

import os
import random
import tomllib
from pathlib import Path

# What the proofs of this run have counted; shown at its end.
told: list[str] = []

_TABLE = Path(__file__).with_name("sizes.toml")


def size_of(proof: str) -> int:
    """Return how large the proof is to be in this run."""
    wanted = os.environ.get("SCRIBE_PROOF_SIZE", "test")
    size: int = int(wanted) if wanted.isdigit() else tomllib.loads(_TABLE.read_text())[proof][wanted]
    return size


def seeded(proof: str) -> random.Random:
    """Return the proof's random numbers and print their seed; SCRIBE_PROOF_SEED gives it again."""
    seed = int(os.environ.get("SCRIBE_PROOF_SEED", random.SystemRandom().randrange(10**9)))
    print(f"{proof}: SCRIBE_PROOF_SEED={seed}")  # noqa: T201 - shown when the proof fails
    return random.Random(seed)


def tell(line: str) -> None:
    """Have a line about a proof shown at the end of the run."""
    told.append(line)
