"""The operations on the queue that are struck: where each starts, what it does, and how its jobs end after all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine

from scribe_pipeline.engines import LineText
from scribe_pipeline.errors import Category
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import cancel_batch
from scribe_pipeline.jobs import (
    JobClaim,
    cancel_job,
    claim_jobs,
    complete_job,
    end_attempt,
    record_preflight,
    record_progress,
    request_job,
)
from scribe_pipeline.pages import Image, fill_lines, load_head, load_image, read_lines, save_page
from tests.houses import House

_WHO = Operator("operator", "struck on purpose")


@dataclass(frozen=True)
class Operation:
    """`end` tells each job as `story` does, and how if the operation was never committed and is not asked for again.

    What a person asked for is asked for again until it is there; what a worker did, the next one does in its own way. What is
    there already is refused with `refused`, or granted once more without effect.
    """

    prepare: Callable[[House], Any]
    act: Callable[[Engine, Any], object]
    end: tuple[str, ...]
    end_without: tuple[str, ...] = field(default=("completed at 2: lease_expired completed",))
    by_person: bool = False
    refused: Category | None = None


@dataclass(frozen=True)
class Held:
    """A job as its worker holds it, and the page that it reads."""

    claim: JobClaim
    image: Image
    payload: str
    lines: tuple[str, ...]


def held(house: House) -> Held:
    """A running job with a page of three lines that is about to be read."""
    house.job()
    claim = house.claim()
    record_preflight(house.engine, claim, {"segments": 3}, 3)
    with house.engine.connect() as connection:
        image, head = load_image(connection, claim.item_image_id), load_head(connection, claim.item_image_id)
    assert image is not None and head is not None
    return Held(claim, image, head.payload, tuple(line.annotation_id for line in read_lines(head.payload)))


def lost(house: House) -> None:
    """A job whose worker has vanished."""
    held(house)
    house.expire_lease()


def half_ingested(house: House) -> Any:
    """A batch with a running job, a pending one, and an image that has no page yet."""
    batch_id, _ = house.ingested(2, incomplete=1)
    house.claim()
    return batch_id


def complete(engine: Engine, work: Held, failed: int = 0) -> int:
    """Commit the lines of the page but the last `failed` ones."""
    read = len(work.lines) - failed
    texts = {line: LineText("text", 0.9) for line in work.lines[:read]}
    return complete_job(engine, work.claim, work.image, texts, dict.fromkeys(work.lines[read:], Category.UPSTREAM))


def save(engine: Engine, work: Held) -> int:
    """Save the page as a person would who has corrected its first line while it was being read."""
    return save_page(engine, work.image.id, 1, fill_lines(work.payload, {work.lines[0]: LineText("by hand", 1)}), "reader")


OPERATIONS: Mapping[str, Operation] = {
    "claim": Operation(
        lambda house: house.job(),
        lambda engine, _: claim_jobs(engine, 60),
        end=("completed at 2: lease_expired completed",),
        end_without=("completed at 2: completed",),
    ),
    "reclaim": Operation(
        lost,
        lambda engine, _: claim_jobs(engine, 60),
        end=("completed at 2: lease_expired lease_expired completed",),
    ),
    "progress": Operation(
        held,
        lambda engine, work: record_progress(engine, work.claim, 1, 1),
        end=("completed at 2: lease_expired completed",),
    ),
    "complete": Operation(held, complete, end=("completed at 2: completed",)),
    "complete in part": Operation(held, lambda engine, work: complete(engine, work, failed=1), end=("completed at 2: completed",)),
    "fail": Operation(
        held,
        lambda engine, work: end_attempt(engine, work.claim, Category.AUTHENTICATION),
        end=("failed at 1: failed",),
        refused=Category.LEASE_LOST,
    ),
    "defer": Operation(
        held,
        lambda engine, work: end_attempt(engine, work.claim, Category.UPSTREAM),
        end=("completed at 2: retryable_failed completed",),
        refused=Category.LEASE_LOST,
    ),
    "cancel a job": Operation(
        held,
        lambda engine, work: cancel_job(engine, work.claim.job_id, _WHO),
        end=("canceled at 1: canceled",),
        by_person=True,
    ),
    "cancel a batch": Operation(
        half_ingested,
        lambda engine, batch_id: cancel_batch(engine, batch_id, _WHO),
        end=("canceled at 1: ", "canceled at 1: canceled"),
        by_person=True,
    ),
    "supersede": Operation(
        held,
        lambda engine, work: request_job(engine, work.image.id, "manuscript", 3, _WHO),
        end=("completed at 2: completed", "superseded at 2: superseded"),
        by_person=True,
    ),
    "save by hand": Operation(
        held,
        save,
        end=("failed at 2: lease_expired failed",),
        by_person=True,
    ),
}


def story(house: House) -> tuple[str, ...]:
    """Tell of each job its status, its page's revision, and what became of its attempts, in their order."""
    return tuple(
        row.told
        for row in house.rows(
            """SELECT format('%s at %s: %s', job.status, page.revision, (
                      SELECT string_agg(attempt.outcome, ' ' ORDER BY attempt.attempt_number)
                      FROM transcription_job_attempts AS attempt WHERE attempt.job_id = job.id)) AS told
               FROM transcription_jobs AS job JOIN annotation_pages AS page USING (item_image_id) ORDER BY told"""
        )
    )
