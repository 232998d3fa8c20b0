"""What was seen of outcomes, notices and digests, commit by commit, and which of the promises about them was broken."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import class_row

from scribe_pipeline.outcomes import FAMILIES
from scribe_pipeline.outcomes.mail import Sent
from tests.endings import FLYERS, JOBS
from tests.mail_sink import Taken

_HOUR, _STALE, _SETTLING = timedelta(hours=1), timedelta(minutes=15), timedelta(minutes=2)
_ROWS = " UNION ALL ".join(
    f"""SELECT '{family.name}' AS family, id::text AS job, status = ANY (ARRAY{list(family.terminal)}) AS ended, updated_at,
           outcome_class AS outcome, outcome_recorded_at AS recorded_at, failure_notified_at AS notified_at,
           outcome_facts ->> 'notice' AS notice, (outcome_facts ->> 'notice_attempts')::integer AS attempts,
           (outcome_facts ->> 'notice_claimed_at')::timestamptz AS claimed_at, clock_timestamp() AS seen_at
    FROM {family.name}"""
    for family in (FLYERS, JOBS)
)
# Where the notice of an outcome just recorded may stand; where it may go from there; a notice not named here stays where it is.
_FIRST = {"none", "backfill", "unconfigured", "digest", "sending"}
_NEXT = {
    "sending": {"sending", "sent", "pending", "failed", "digest", "unconfigured"},
    "pending": {"sending", "failed", "digest", "unconfigured"},
}
_UNTOLD = ("success", "cancelled")


@dataclass(frozen=True)
class Row:
    """A job as somebody else can see it after a commit."""

    family: str
    job: str
    ended: bool
    updated_at: datetime
    outcome: str | None
    recorded_at: datetime | None
    notified_at: datetime | None
    notice: str | None
    attempts: int | None
    claimed_at: datetime | None
    seen_at: datetime

    @property
    def mail(self) -> str:
        """The key of the mail that its last claim sends."""
        return f"{FAMILIES[self.family].kind}-{self.job}-{self.attempts}"


@dataclass
class Digest:
    """The claim of a digest: the jobs that it covers, and whether it was given back."""

    family: str
    stamp: datetime
    jobs: set[str]
    released: bool = False

    @property
    def mail(self) -> str:
        """The key of its mail."""
        return f"{FAMILIES[self.family].kind}-digest-{self.stamp:%Y%m%dT%H%M%S%f}"


def key_of(taken: Taken) -> str:
    """The key of a mail that was taken."""
    return str(taken.message["Message-ID"]).strip().removeprefix("<").partition("@")[0]


class Ledger:
    """All that has become of the jobs of one schedule, and complaints of what must not be.

    `cap` notices an hour are allowed for each family; `lookback` is after what time nobody is told any more; `fates` tells what the
    senders of mails have heard of them, by their keys.
    """

    def __init__(self, watcher: psycopg.Connection[Any], cap: int, lookback: timedelta, fates: Mapping[str, Sent]) -> None:
        self.complaints: list[str] = []
        self.counted: Counter[str] = Counter()
        self.claims: dict[str, Row] = {}
        self.digests: list[Digest] = []
        self.classes: dict[str, str] = {}
        # Digests of which it is right that nobody has received them: their senders died or never heard.
        self.lost: set[str] = set()
        self._watcher = watcher
        self._cap = cap
        self._fates = fates
        self._lookback = lookback
        self._rows: dict[str, Row] = {}

    def observe(self) -> list[str]:
        """Look at all jobs after a commit; return the keys of the digests that were claimed in it."""
        with self._watcher.cursor(row_factory=class_row(Row)) as cursor:
            rows = cursor.execute(_ROWS, prepare=True).fetchall()
        stamped: dict[tuple[str, datetime], set[str]] = {}
        for row in rows:
            before = self._rows.get(row.job)
            if row.recorded_at is not None:
                if before is None or before.recorded_at is None:
                    self._first(before, row)
                else:
                    self._step(before, row)
                was_told = None if before is None else before.notified_at
                if row.notice == "digest" and row.notified_at is not None and was_told is None:
                    stamped.setdefault((row.family, row.notified_at), set()).add(row.job)
            elif before is not None and before.recorded_at is not None:
                self._complain(row, "its outcome is gone")
            self._rows[row.job] = row
        self._released()
        return [self._digest(Digest(family, stamp, jobs)) for (family, stamp), jobs in stamped.items()]

    def undone(self) -> list[str]:
        """The rows with which something is left to be done."""
        return [
            str(row)
            for row in self._rows.values()
            if (row.recorded_at is None and row.ended)
            or row.notice in ("sending", "pending")
            or (row.notice == "digest" and row.notified_at is None)
        ]

    def judge(self, mails: Sequence[Taken]) -> None:
        """Compare rows at rest with the mails that were taken."""
        subjects = {key_of(taken): str(taken.message["Subject"]) for taken in mails}
        for key, times in Counter(map(key_of, mails)).items():
            if times > 1:
                self.complaints.append(f"{key} was sent {times} times")
        digests = {digest.mail: digest for digest in self.digests}
        self.complaints += [
            f"{key} was sent, and nobody had claimed it" for key in subjects.keys() - digests.keys() - self.claims.keys()
        ]
        told = [digest for key, digest in digests.items() if key in subjects]
        for digest in told:
            number = re.search(r"\d+", subjects[digest.mail])
            if digest.released or number is None or int(number[0]) != len(digest.jobs):
                self.complaints.append(f"{digest} was sent: {subjects[digest.mail]}")
        for job, times in Counter(job for digest in told for job in digest.jobs).items():
            if times > 1:
                self.complaints.append(f"{job} is in {times} digests")
        self._account({*subjects}, {job for digest in told for job in digest.jobs})
        self.counted.update(mails=len(subjects), digest_mails=len(told))

    def _account(self, mails: set[str], told: set[str]) -> None:
        """Ask of each job whether what it says is so."""
        untold = {job for digest in self.digests if digest.mail in self.lost and not digest.released for job in digest.jobs}
        for row in self._rows.values():
            self.counted[f"at rest {row.notice}"] += row.notice is not None
            if sum(f"{FAMILIES[row.family].kind}-{row.job}-{attempt}" in mails for attempt in range(10)) > 3:
                self._complain(row, "more than three mails")
            if row.notice == "sent" and row.mail not in mails:
                self._complain(row, "nobody was told")
            if row.notice == "digest" and row.job not in told | untold:
                self._complain(row, "no digest has told of it")
            if row.notice != "digest" and row.job in told:
                self._complain(row, "a digest has told of it")

    def _first(self, before: Row | None, row: Row) -> None:
        assert row.recorded_at is not None
        self.counted[f"recorded {row.notice}"] += 1
        if before is not None and row.updated_at != before.updated_at:
            self._complain(row, "updated_at has changed, as its outcome was recorded")
        if not row.ended or row.recorded_at - row.updated_at < _SETTLING:
            self._complain(row, "recorded too early")
        if row.outcome != self.classes[row.job] or row.notice not in _FIRST or (row.notice == "none") != (row.outcome in _UNTOLD):
            self._complain(row, f"recorded wrongly, as it was {self.classes[row.job]}")
        if row.attempts != (row.notice == "sending") or row.notified_at is not None:
            self._complain(row, "recorded with a past")
        if row.notice == "sending":
            self._claim(row)

    def _step(self, before: Row, row: Row) -> None:
        if (row.outcome, row.recorded_at, row.updated_at) != (before.outcome, before.recorded_at, before.updated_at):
            self._complain(row, "an outcome is recorded once")
        if (row.notice, row.attempts) == (before.notice, before.attempts):
            if row.notice != "digest" and row.notified_at != before.notified_at:
                self._complain(row, "told without a notice")
            return
        assert before.notice is not None and before.attempts is not None and before.claimed_at is not None
        claims = row.notice == "sending"
        self.counted[f"{before.notice} -> {row.notice}"] += 1
        if row.notice not in _NEXT.get(before.notice, ()) or row.attempts != before.attempts + claims:
            self._complain(row, f"it was {before.notice} by attempt {before.attempts}")
        settled = row.notice in ("sent", "pending") or (row.notice == "failed" and row.attempts == 3)
        if before.notice == "sending" and not settled and (row.claimed_at if claims else row.seen_at) - before.claimed_at < _STALE:
            self._complain(row, f"taken from whoever had claimed it at {before.claimed_at}")
        is_stale = row.notice == "failed" and row.seen_at - before.claimed_at >= _STALE
        heard = self._fates.get(row.mail)
        if settled and not is_stale and (heard is None or (heard is Sent.DELIVERED) != (row.notice == "sent")):
            self._complain(row, f"settled by somebody else than its sender, who heard {heard}")
        if row.notice == "failed" and row.attempts != 3 and row.seen_at - row.updated_at < self._lookback:
            self._complain(row, "given up")
        if claims:
            self._claim(row)

    def _claim(self, row: Row) -> None:
        assert row.claimed_at is not None and row.attempts is not None
        if row.attempts > 3:
            self._complain(row, "claimed more than three times")
        if row.mail in self.claims:
            self._complain(row, "claimed twice")
        self.claims[row.mail] = row
        within = {
            claim.job
            for claim in self.claims.values()
            if claim.family == row.family and claim.claimed_at is not None and claim.claimed_at > row.claimed_at - _HOUR
        }
        self.counted["hours that are full"] += len(within) == self._cap
        if len(within) > self._cap:
            self._complain(row, f"one of {len(within)} within an hour, where {self._cap} may be")

    def _digest(self, digest: Digest) -> str:
        for other in self.digests:
            if other.family == digest.family and not other.released and abs(other.stamp - digest.stamp) < _HOUR:
                self.complaints.append(f"{digest} within an hour of {other}")
        self.counted["digests claimed"] += 1
        self.digests.append(digest)
        return digest.mail

    def _released(self) -> None:
        """Take note of digests whose rows wait again."""
        for digest in self.digests:
            kept = {job for job in digest.jobs if self._rows[job].notified_at == digest.stamp}
            if not digest.released and kept != digest.jobs:
                digest.released = True
                self.counted["digests released"] += 1
                if kept:
                    self.complaints.append(f"{digest} was given back but for {kept}")

    def _complain(self, row: Row, words: str) -> None:
        self.complaints.append(f"{words}: {row}")
