"""Late writes by workers that were presumed dead, and by people who have seen an older page: none is accepted, nothing changes."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from scribe_pipeline.errors import Category, ScribeError
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import cancel_batch
from scribe_pipeline.jobs import JobClaim, cancel_job, claim_jobs, end_attempt, record_progress, renew_claim
from tests.houses import EMPTIED, House
from tests.proofs import seeded, size_of, tell

OPERATOR = Operator("operator")
RECLAIMED = ("taken over", "taken over and completed")


@dataclass
class Zombie:
    """A worker with the claim that it lost, and how; `heir` is the claim of the worker that has taken its job over."""

    number: int
    fate: str
    batch_id: Any
    claim: JobClaim
    heir: JobClaim | None = None


def refuses(category: Category, write: Callable[[], object]) -> bool:
    """Whether the write is refused for this reason."""
    try:
        write()
    except ScribeError as error:
        return error.category is category
    return False


def late(write: Callable[[House, JobClaim], object]) -> Callable[[House, JobClaim], bool]:
    """Whether a write reports that the job is lost."""
    return lambda house, claim: refuses(Category.LEASE_LOST, lambda: write(house, claim))


WRITES: dict[str, Callable[[House, JobClaim], bool]] = {
    "progress": late(lambda house, claim: record_progress(house.engine, claim, 0, 0)),
    "renew": lambda house, claim: not renew_claim(house.engine, claim),
    "fail": late(lambda house, claim: end_attempt(house.engine, claim, Category.AUTHENTICATION)),
    "defer": late(lambda house, claim: end_attempt(house.engine, claim, Category.TIMEOUT)),
    "complete": late(lambda house, claim: house.complete(claim, "by the dead")),
}
SAVE = {"save": lambda house, claim: refuses(Category.PAGE_CHANGED, lambda: house.save(claim.item_image_id, 1))}

FATES: dict[str, Callable[[House, Zombie], object]] = {
    "taken over": lambda house, zombie: None,
    "taken over and completed": lambda house, zombie: house.complete(zombie.heir),
    "canceled": lambda house, zombie: cancel_job(house.engine, zombie.claim.job_id, OPERATOR),
    "superseded": lambda house, zombie: supersede(house, zombie),
    "canceled with its batch": lambda house, zombie: cancel_batch(house.engine, zombie.batch_id, OPERATOR),
    "failed as exhausted": lambda house, zombie: claim_jobs(house.engine, 600, 1, zombie.batch_id),
}
STATUS = dict(zip(FATES, ("running", "completed", "canceled", "superseded", "canceled", "failed"), strict=True))


@pytest.mark.proof
def test_the_dead_write_nothing(house: House) -> None:
    """R10, R27, R91, R120: no late progress, renewal, failure, deferral, completion or page save is accepted, after whatever end.

    The writes of all workers are sent in a random order; between the first and the last not a row of any table changes.
    """
    numbers = seeded("zombies")
    zombies = bury(house, numbers, size_of("zombies"))
    accepted = send(house, numbers, zombies, WRITES)
    for zombie in zombies:
        move_page_on(house, zombie)
    accepted += send(house, numbers, zombies, SAVE)
    counts = Counter(kind for kind, _ in accepted)
    tell("zombies: " + ", ".join(f"{kind} {len(zombies):,} sent {counts[kind]} accepted" for kind in (*WRITES, *SAVE)))
    assert not accepted


def bury(house: House, numbers: random.Random, count: int) -> list[Zombie]:
    """Workers, each with a page, a job and a batch of its own, that are presumed dead and have lost their jobs at random."""
    fates = [numbers.choice(list(FATES)) for _ in range(count)]
    batches = [house.ingested(1, max_attempts=1 if fate == "failed as exhausted" else 2)[0] for fate in fates]
    claims = {claim.job_id: claim for claim in claim_jobs(house.engine, 600, count)}
    job_of = {row.batch_id: row.id for row in house.rows("SELECT batch_id, id FROM transcription_jobs")}
    zombies = [
        Zombie(number, fate, batch, claims[job_of[batch]]) for number, (fate, batch) in enumerate(zip(fates, batches, strict=True))
    ]
    house.expire_lease()
    for zombie in zombies:
        if zombie.fate in RECLAIMED:
            (zombie.heir,) = claim_jobs(house.engine, 600, 1, zombie.batch_id)
        FATES[zombie.fate](house, zombie)
    status = {row.id: row.status for row in house.rows("SELECT id, status FROM transcription_jobs")}
    assert [status[zombie.claim.job_id] for zombie in zombies] == [STATUS[zombie.fate] for zombie in zombies]
    return zombies


def supersede(house: House, zombie: Zombie) -> None:
    """A newer request replaces the zombie's job; its worker holds the page's new job."""
    house.job(house.loaded(zombie.claim.item_image_id), context="manuscript")
    (zombie.heir,) = claim_jobs(house.engine, 600, 1, zombie.batch_id)


def move_page_on(house: House, zombie: Zombie) -> None:
    """Bring the page to revision 2: whoever holds its job now can still complete it; otherwise a person saves."""
    if zombie.fate == "taken over and completed":
        return
    if zombie.heir is not None:
        assert house.complete(zombie.heir) == 2
    else:
        assert house.save(zombie.claim.item_image_id, 1) == 2


def send(
    house: House, numbers: random.Random, zombies: Sequence[Zombie], writes: dict[str, Callable[[House, JobClaim], bool]]
) -> list[tuple[str, str]]:
    """Have each worker send each kind of write, in a random order, and return those that were not refused."""
    sent = [(zombie, kind) for zombie in zombies for kind in writes]
    numbers.shuffle(sent)
    before = versions(house)
    refused = [writes[kind](house, zombie.claim) for zombie, kind in sent]
    after = versions(house)
    accepted = [(kind, f"{zombie.number}: {zombie.fate}") for (zombie, kind), no in zip(sent, refused, strict=True) if not no]
    changed = [table for table in EMPTIED if before[table] != after[table]]
    assert not changed, f"late writes have changed {changed}; accepted were {accepted}"
    return accepted


def versions(house: House) -> dict[str, str]:
    """A digest of each table's rows and of which transactions wrote them."""
    statement = "SELECT md5(string_agg(concat(one.xmin, one.ctid, one), '' ORDER BY one.ctid)) FROM {} AS one"
    return {table: house.value(statement.format(table)) for table in EMPTIED}
