"""Small starting states for sessions that get in one another's way, and the operations that they may do there."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import Engine

from scribe_pipeline.database import connect
from scribe_pipeline.engines import LineText, Segmentation
from scribe_pipeline.errors import Category
from scribe_pipeline.events import Operator
from scribe_pipeline.ingest import IngestSettings, SegmentationSource, cancel_batch, settle_batch
from scribe_pipeline.ingest.claims import FileClaim, claim_file
from scribe_pipeline.ingest.work import SegmentationUnit
from scribe_pipeline.jobs import (
    JobClaim,
    cancel_job,
    claim_jobs,
    complete_job,
    end_attempt,
    record_preflight,
    record_progress,
    renew_claim,
    request_job,
)
from scribe_pipeline.pages import Image, build_page, fill_lines, read_lines, save_page
from tests.faults.kept import EMPTY, KeptRows
from tests.faults.schedule import Operation
from tests.houses import THREE_LINES, House
from tests.proofs import seeded_item

# So long that none runs out while a proof is running.
_LEASE_SECONDS = 7 * 86400
_STAGES = 250
_OPERATOR = Operator("operator", "to see")


@dataclass
class Stage:
    """A running batch: its images with a page and those without, its jobs, and all claims on them, dead or alive.

    A `mixed` claim names the attempt of today with the token of yesterday. `file` is the claim of whoever looks for the lines
    of the incomplete image.
    """

    batch_id: UUID
    images: list[Image]
    incomplete: list[Image]
    claims: list[JobClaim]
    mixed: list[JobClaim]
    jobs: list[UUID]
    file: FileClaim | None
    settings: IngestSettings


class Stages:
    """Sets up stages in one database, one after the other. One that was made before is put there again as it was, row by row."""

    def __init__(self, url: str, seed: int) -> None:
        self._engine = connect(url)
        self._folder = tempfile.TemporaryDirectory(prefix="scribe-stages-")
        self._house = House(self._engine, Path(self._folder.name) / "blobs")
        self._seed = seed
        self._made: dict[int, Stage] = {}
        self._rows = KeptRows(url)

    def next(self, chance: Random) -> Stage:
        """Replace all rows by those of one of some hundred stages."""
        number = chance.randrange(_STAGES)
        if number in self._made:
            self._rows.put(number)
        else:
            self._rows.put(EMPTY)
            self._made[number] = self._make(seeded_item(self._seed, f"stage {number}"))
            self._rows.keep(number)
        return self._made[number]

    def close(self) -> None:
        """Give up the connections and the scans."""
        self._folder.cleanup()
        self._engine.dispose()
        self._rows.close()

    def _make(self, chance: Random) -> Stage:
        """A batch of one to three pages whose jobs are pending, deferred, running, expired or completed."""
        house, pages = self._house, chance.randint(1, 3)
        incomplete = chance.choice((0, 0, 1))
        if chance.random() < 0.4:
            self._subscribe()
        batch_id, images = house.ingested(pages, incomplete, max_attempts=chance.randint(1, 3))
        lost = self._claim(batch_id, chance.randint(0, pages))
        # they are due in their pages' order, whatever order the server changes rows in
        house.execute("UPDATE transcription_jobs SET lease_until = created_at WHERE status = 'running'")
        held = self._claim(batch_id, chance.randint(0, pages))
        if held and chance.random() < 0.2:
            house.complete(held[0])
        if len(held) > 1 and chance.random() < 0.3:
            self._defer(held[-1])
        file = claim_file(self._engine, batch_id, _LEASE_SECONDS, stored=True) if incomplete and chance.random() < 0.7 else None
        jobs = [row.id for row in house.rows("SELECT id FROM transcription_jobs ORDER BY id")]
        mixed = [replace(claim, lease=old.lease) for claim in held for old in lost if claim.job_id == old.job_id]
        return Stage(batch_id, images[:pages], images[pages:], lost + held, mixed, jobs, file, house.settings)

    def _subscribe(self) -> None:
        self._house.execute(
            """INSERT INTO webhook_subscriptions (id, workspace_id, target_url, signing_secret)
               SELECT :id, id, 'https://example.org/hook', repeat('s', 32) FROM workspaces""",
            id=uuid4(),
        )

    def _claim(self, batch_id: UUID, count: int) -> list[JobClaim]:
        return claim_jobs(self._engine, _LEASE_SECONDS, count, batch_id) if count else []

    def _defer(self, claim: JobClaim) -> None:
        """Have the job wait for a retry that is due now."""
        end_attempt(self._engine, claim, Category.TIMEOUT)
        self._house.execute(
            "UPDATE transcription_jobs SET retry_after = clock_timestamp() - interval '1 second' WHERE retry_after IS NOT NULL"
        )


def scripts(stage: Stage, chance: Random) -> list[list[Operation]]:
    """What each of two to five sessions does: one operation or two."""
    return [[_draw(stage, chance) for _ in range(chance.choice((1, 1, 2)))] for _ in range(chance.randint(2, 5))]


def _draw(stage: Stage, chance: Random) -> Operation:
    of_a_claim, of_a_file = [_use_claim] * 8 * bool(stage.claims), [_segment] * 2 * (stage.file is not None)
    return chance.choice(of_a_claim + of_a_file + _OTHERS)(stage, chance)


def _use_claim(stage: Stage, chance: Random) -> Operation:
    claim, kind = chance.choice(stage.claims + stage.mixed), chance.choice([*_WRITES, "complete", "complete", "complete in part"])
    (image,) = (image for image in stage.images if image.id == claim.item_image_id)
    subject = f"{image.label} in attempt {claim.attempt_number}{' by an older token' * (claim in stage.mixed)}"
    if kind in _WRITES:
        return Operation(kind, subject, lambda engine: _WRITES[kind](engine, claim), {"claim": claim})
    said = f"read {chance.getrandbits(32)}"
    ids = [line.annotation_id for line in read_lines(build_page(image, THREE_LINES))]
    read = len(ids) if kind == "complete" else 1
    texts = {annotation_id: LineText(said, 0.9) for annotation_id in ids[:read]}
    failures = dict.fromkeys(ids[read:], Category.UPSTREAM)
    return Operation(
        kind,
        subject,
        lambda engine: complete_job(engine, claim, image, texts, failures),
        {"claim": claim, "image": image.id, "said": said},
    )


def _progress(engine: Engine, claim: JobClaim) -> None:
    record_preflight(engine, claim, {"segments": 3}, 3)
    record_progress(engine, claim, 2, 1)


# What a worker may write with a claim, short of a result; the claim was made when the stage was set.
_WRITES: dict[str, Callable[[Engine, JobClaim], Any]] = {
    "renew": renew_claim,
    "progress": _progress,
    "fail": lambda engine, claim: end_attempt(engine, claim, Category.AUTHENTICATION),
    "defer": lambda engine, claim: end_attempt(engine, claim, Category.TIMEOUT),
}


def _claim(stage: Stage, chance: Random) -> Operation:
    limit, batch_id = chance.choice((1, 1, 2, 3)), chance.choice((None, stage.batch_id))
    whose = "all" if batch_id is None else "the batch"
    return Operation("claim", f"{limit} of {whose}", lambda engine: claim_jobs(engine, _LEASE_SECONDS, limit, batch_id))


def _cancel_batch(stage: Stage, chance: Random) -> Operation:
    return Operation("cancel", "the batch", lambda engine: cancel_batch(engine, stage.batch_id, _OPERATOR))


def _cancel_job(stage: Stage, chance: Random) -> Operation:
    number = chance.randrange(len(stage.jobs))
    job = stage.jobs[number]
    return Operation("cancel job", f"{number + 1}", lambda engine: cancel_job(engine, job, _OPERATOR), {"job": job})


def _request(stage: Stage, chance: Random) -> Operation:
    image, context = chance.choice(stage.images + stage.incomplete), chance.choice((None, "letter", "manuscript"))
    subject = f"{image.label} as {context}"
    return Operation("request", subject, lambda engine: request_job(engine, image.id, context, 3, _OPERATOR))


def _save(stage: Stage, chance: Random) -> Operation:
    image, expected = chance.choice(stage.images + stage.incomplete), chance.choice((1, 1, 2))
    said, page = f"saved {chance.getrandbits(32)}", build_page(image, THREE_LINES)
    payload = fill_lines(page, {read_lines(page)[0].annotation_id: LineText(said, 1)})
    return Operation(
        "save",
        f"{image.label} at {expected}",
        lambda engine: save_page(engine, image.id, expected, payload, "reader"),
        {"image": image.id, "expected": expected, "said": said},
    )


def _settle(stage: Stage, chance: Random) -> Operation:
    return Operation("settle", "the batch", lambda engine: settle_batch(engine, stage.batch_id, 0))


def _segment(stage: Stage, chance: Random) -> Operation:
    """Give the incomplete image its page, by the claim on its file."""
    claim, image, settings = stage.file, stage.incomplete[0], stage.settings

    def finish(engine: Engine) -> None:
        source = SegmentationSource(replace(settings, engine=engine), stage.batch_id, _ignore, _ignore)
        SegmentationUnit(source, claim, image, with_preview=False).finish(Segmentation(THREE_LINES, "fake 1.0", 0.0))

    return Operation("segment", image.label, finish, {"image": image.id, "said": ""})


def _ignore(_: object) -> None:
    pass


_OTHERS = [_claim, _claim, _cancel_batch, _cancel_job, _request, _save, _save, _settle]
