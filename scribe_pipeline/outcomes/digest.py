"""The digest: one mail an hour at most that covers all failures for which the hour had no notice of their own."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import Engine

from scribe_pipeline.database import DatabaseError
from scribe_pipeline.outcomes.families import Family
from scribe_pipeline.outcomes.mail import Mailer, Sent
from scribe_pipeline.outcomes.notices import digest_mail
from scribe_pipeline.outcomes.records import LOCKED, NOT_MIGRATED, UNMIGRATED, Policy, claim_digest, release_digest


@dataclass
class Digests:
    """How many failures the digests just sent cover, by family, and what went wrong."""

    covered: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def send_digests(
    engine: Engine, families: Mapping[Family, Policy], mailer: Mailer, sleep: Callable[[float], None] = time.sleep
) -> Digests:
    """Send each family's digest if there is something to be told and the hour is over.

    The rows are claimed before: a mail of which it is not known whether it came counts as one that did, so that no row is told of
    twice; one that certainly did not come leaves its rows to the next call. Trouble with one family is raised when the others
    have had their turn (DatabaseError).
    """
    done = Digests()
    trouble: DatabaseError | None = None
    for family, policy in families.items():
        if policy.enabled and policy.recipient is not None:
            try:
                _send_digest(engine, family, policy, mailer, done, sleep)
            except DatabaseError as error:
                if error.sqlstate in NOT_MIGRATED:
                    done.problems.append(f"{family.name}: {UNMIGRATED}")
                elif error.sqlstate == LOCKED:
                    done.problems.append(f"{family.name}: somebody else is at it, and the digest waits for the next call")
                else:
                    trouble = error
    if trouble is not None:
        raise trouble
    return done


def _send_digest(
    engine: Engine, family: Family, policy: Policy, mailer: Mailer, done: Digests, sleep: Callable[[float], None]
) -> None:
    stamps: list[datetime] = []
    try:
        stamp, rows = claim_digest(engine, family, stamps.append)
    except DatabaseError:
        # the answer to a COMMIT can be lost: what may be claimed was told to nobody
        for stamp in stamps:
            _release(engine, family, stamp, sleep)
        raise
    if not rows:
        return
    delivery = mailer.send(digest_mail(family, rows, stamp, policy))
    if delivery.problem is not None:
        done.problems.append(f"{family.name}: {delivery.problem}")
    if delivery.result is Sent.REFUSED:
        _release(engine, family, stamp, sleep)
    else:
        done.covered[family.name] = len(rows)


def _release(engine: Engine, family: Family, stamp: datetime, sleep: Callable[[float], None]) -> None:
    """Give the rows back, whatever it takes within half a minute: what stays claimed is told to nobody."""
    for wait in (1, 2, 4, 8, 15, None):
        try:
            release_digest(engine, family, stamp)
            return
        except DatabaseError as error:
            if wait is None:
                problem = f"the digest of {family.name} claimed at {stamp} reached nobody, and its rows could not be given back"
                raise DatabaseError(error.category, problem, error.sqlstate, error.constraint) from None
            sleep(wait)
