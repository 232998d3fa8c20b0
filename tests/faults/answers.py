"""Whether what operations have answered agrees with the rows and with one another, in the order of their commits."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import psycopg

from scribe_pipeline.errors import Category
from scribe_pipeline.jobs import JobClaim
from tests.faults.schedule import Answer

# What an operation may refuse. A claim, a renewal and a settling answer without.
_REFUSALS: dict[str, set[Category]] = {
    "progress": {Category.LEASE_LOST},
    "fail": {Category.LEASE_LOST},
    "defer": {Category.LEASE_LOST},
    "complete": {Category.LEASE_LOST, Category.PAGE_CHANGED},
    "complete in part": {Category.LEASE_LOST, Category.PAGE_CHANGED},
    "segment": {Category.LEASE_LOST},
    "save": {Category.PAGE_CHANGED, Category.NOT_FOUND},
    "request": {Category.NOT_FOUND, Category.FAILED_PRECONDITION},
    "cancel": {Category.FAILED_PRECONDITION},
    "cancel job": {Category.FAILED_PRECONDITION},
}

_ATTEMPTS = """SELECT job_id, attempt_number, attempt.lease_token, outcome, attempt.result_revision, lease_until < clock_timestamp()
    FROM transcription_job_attempts AS attempt JOIN transcription_jobs ON id = job_id"""
_JOBS = "SELECT id, batch_id, status FROM transcription_jobs"
_REVISIONS = """SELECT item_image_id, author_kind, job_id, payload FROM annotation_page_revisions
    ORDER BY item_image_id, revision"""
_BATCHES = "SELECT id, status FROM ingest_batches"


@dataclass(frozen=True)
class Attempt:
    """A row of an attempt; `expired` if it runs still, but its lease has run out."""

    job_id: UUID
    token: str
    outcome: str
    result_revision: int | None
    expired: bool


@dataclass(frozen=True)
class Rows:
    """What answers are compared with: attempts, jobs with batch and status, batches by status, each page's revisions."""

    attempts: dict[tuple[UUID, int], Attempt]
    jobs: dict[UUID, tuple[UUID | None, str]]
    batches: dict[UUID, str]
    chains: dict[UUID, list[tuple[str, UUID | None, str]]]


def read_rows(connection: psycopg.Connection[Any]) -> Rows:
    """Read them as they are now."""
    chains: dict[UUID, list[tuple[str, UUID | None, str]]] = defaultdict(list)
    for image, kind, job, payload in connection.execute(_REVISIONS):
        chains[image].append((kind, job, payload))
    return Rows(
        {(job, number): Attempt(job, *values) for job, number, *values in connection.execute(_ATTEMPTS)},
        {job: (batch, status) for job, batch, status in connection.execute(_JOBS)},
        dict(connection.execute(_BATCHES).fetchall()),
        chains,
    )


class Judge:
    """Follows the answers of one interleaving from its first rows to its last and notes what does not fit."""

    def __init__(self, before: Rows, after: Rows) -> None:
        self.complaints: list[str] = []
        self._after = after
        # Claims are known by their tokens: one may name the right attempt with another's token.
        self._jobs_of = {attempt.token: attempt.job_id for attempt in after.attempts.values()}
        self._outcomes = {attempt.token: attempt.outcome for attempt in after.attempts.values()}
        self._given = {attempt.token for attempt in before.attempts.values()}
        self._open = {attempt.token for attempt in before.attempts.values() if attempt.outcome == "running"}
        self._expired = {attempt.token for attempt in before.attempts.values() if attempt.outcome == "running" and attempt.expired}
        self._committed = {attempt.token: attempt.result_revision for attempt in before.attempts.values()}
        self._over = {job for job, (_, status) in before.jobs.items() if status not in ("pending", "running")}
        self._chains = defaultdict(list, {image: list(chain) for image, chain in before.chains.items()})

    def judge(self, answers: Sequence[Answer]) -> list[str]:
        """Return what does not fit."""
        for answer in answers:
            self._complain(answer, *self._faults(answer))
        for image, expected in self._chains.items():
            there = self._after.chains.get(image, [])
            if len(there) != len(expected) or any(
                (kind, job) != (other, origin) or said not in payload
                for (kind, job, said), (other, origin, payload) in zip(expected, there, strict=True)
            ):
                self.complaints.append(
                    f"revisions of {image} are {[row[:2] for row in there]}, not {[row[:2] for row in expected]}"
                )
        return self.complaints

    def _complain(self, answer: Answer, *faults: str) -> None:
        self.complaints += [f"{answer}: {fault}" for fault in faults]

    def _faults(self, answer: Answer) -> list[str]:
        kind, facts = answer.operation.kind, answer.operation.facts
        if answer.refusal is not None:
            return self._refused(answer)
        if kind == "claim":
            return [fault for claim in answer.value for fault in self._claimed(claim)]
        if kind in ("renew", "progress", "fail", "defer") and answer.value is not False:
            return self._written(kind, facts["claim"])
        if kind.startswith("complete"):
            return self._completed(facts["claim"], facts["image"], facts["said"], answer.value)
        if kind == "save":
            return self._appended(facts["image"], ("human", None, facts["said"]), answer.value)
        if kind == "segment":
            return self._appended(facts["image"], ("ocr", None, facts["said"]), 1)
        return self._intervened(answer)

    def _refused(self, answer: Answer) -> list[str]:
        kind, facts = answer.operation.kind, answer.operation.facts
        faults = []
        if answer.refusal not in _REFUSALS.get(kind, set()):
            faults.append("no such refusal is foreseen")
        if answer.refusal is Category.LEASE_LOST and "claim" in facts and self._outcomes[_token(facts["claim"])] == "running":
            faults.append("its lease is not lost")
        if answer.refusal is Category.PAGE_CHANGED:
            expected = facts["expected"] if kind == "save" else facts["claim"].input_revision
            if len(self._chains[facts["image"]]) == expected:
                faults.append("the page was as expected")
        return faults

    def _claimed(self, claim: JobClaim) -> list[str]:
        token, before = _token(claim), self._after.attempts.get((claim.job_id, claim.attempt_number - 1))
        faults = []
        if token in self._given or self._jobs_of.get(token) != claim.job_id:
            faults.append("its attempt is not its own")
        if claim.job_id in self._over:
            faults.append("its job had ended")
        if before is not None and before.token in self._open - self._expired:
            faults.append("a live lease was taken")
        self._close({claim.job_id}, for_good=False)
        self._given.add(token)
        self._open.add(token)
        return faults

    def _written(self, kind: str, claim: JobClaim) -> list[str]:
        token = _token(claim)
        faults = [] if token in self._open else ["an old token has written"]
        if kind == "renew" and token in self._expired:
            faults.append("an expired lease was renewed")
        if kind not in ("renew", "progress"):
            self._close({claim.job_id}, for_good=kind != "defer")
        return faults

    def _completed(self, claim: JobClaim, image: UUID, said: str, revision: int) -> list[str]:
        token = _token(claim)
        if (known := self._committed.get(token)) is not None:
            return [] if known == revision else [f"it had committed revision {known}"]
        faults = self._written("complete", claim) + self._appended(image, ("ocr", claim.job_id, said), revision)
        if self._outcomes[token] != "completed":
            faults.append("its attempt is not completed")
        self._committed[token] = revision
        return faults

    def _appended(self, image: UUID, revision: tuple[str, UUID | None, str], number: int) -> list[str]:
        self._chains[image].append(revision)
        there = len(self._chains[image])
        return [] if there == number else [f"it is revision {there}"]

    def _intervened(self, answer: Answer) -> list[str]:
        kind, after = answer.operation.kind, self._after
        if kind == "cancel":
            (status,) = after.batches.values()
            if answer.value:
                self._close({job for job, (batch, _) in after.jobs.items() if batch is not None})
            active = [job for job, (batch, status) in after.jobs.items() if batch is not None and status in ("pending", "running")]
            return ["the batch is not canceled"] * (status != "canceled") + ["it has active jobs"] * bool(active)
        if kind == "cancel job":
            job = answer.operation.facts["job"]
            self._close({job})
            return ["the job is not canceled"] * (after.jobs[job][1] != "canceled")
        if kind == "request" and answer.value.superseded is not None:
            self._close({answer.value.superseded})
            return ["the job is not superseded"] * (after.jobs[answer.value.superseded][1] != "superseded")
        if kind == "settle" and answer.value.finished:
            return ["the batch is not so"] * (after.batches[answer.value.id] != answer.value.status)
        return []

    def _close(self, jobs: set[UUID], *, for_good: bool = True) -> None:
        self._open = {token for token in self._open if self._jobs_of[token] not in jobs}
        if for_good:
            self._over |= jobs


def _token(claim: JobClaim) -> str:
    return claim.lease.token.get_secret_value()
