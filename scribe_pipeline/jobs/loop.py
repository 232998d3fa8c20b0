"""The loop that keeps the engines busy: claim, hand to a worker process, renew the lease meanwhile, finish.

What a unit of work is, a source says; nothing here knows a table. No transaction is open while an engine runs.
"""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from functools import partial
from typing import Any, Protocol

from scribe_pipeline.database import DatabaseError
from scribe_pipeline.engines import EnginePool, ProcessExpired, Ticket
from scribe_pipeline.errors import Category, ScribeError

logger = logging.getLogger(__name__)

# How often progress is looked at while engines run, seconds.
_LOOK_SECONDS = 0.5
_HEARTBEATS_A_LEASE = 4


class Unit(Protocol):
    """One claimed piece of work. Every method may raise ScribeError (lease_lost): the work is then dropped."""

    task: Callable[..., Any]
    arguments: tuple[Any, ...]

    def renew(self) -> bool:
        """Move the lease's deadline; False if it is lost."""

    def progress(self, succeeded: int, failed: int) -> None:
        """Say how many lines are done."""

    def finish(self, result: Any) -> None:
        """Commit the task's result. To be called again if the database went away meanwhile."""

    def fail(self, category: Category, message: str) -> None:
        """Give the work back for a retry, or end it, as the category says."""


class Source(Protocol):
    """Where units come from."""

    def claim(self, limit: int) -> Sequence[Unit]:
        """Take up to `limit` units that need an engine; none when nothing is due."""


def drain(
    sources: Sequence[Source],
    pool: EnginePool,
    lease_seconds: float,
    claim_seconds: float,
    stopped: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Work until no source has anything due, or until `claim_seconds` have gone by and what was claimed is finished.

    Sources are asked in their order, so that the first one's work is finished before the next one's is begun. Once `stopped`
    says so, and on any exception, an interrupt too, what is held is given back for a retry. A database that does not answer is
    waited for as long as a lease lasts. Raises DatabaseError for one that is away for longer; and ScribeError (unavailable) for
    an engine or a store that is not there, once all else that was claimed is finished.
    """
    _Drain(sources, pool, lease_seconds, clock() + claim_seconds, stopped, clock, sleep).run()


class _Drain:
    """One run of the loop: what is claimed and not begun, what is held, and since when the database has not answered."""

    def __init__(
        self,
        sources: Sequence[Source],
        pool: EnginePool,
        lease_seconds: float,
        claim_until: float,
        stopped: Callable[[], bool],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        self._sources = sources
        self._pool = pool
        self._lease_seconds = lease_seconds
        self._claim_until = claim_until
        self._stopped = stopped
        self._clock = clock
        self._sleep = sleep
        self._claimed: list[Unit] = []
        self._held: dict[Ticket, Unit] = {}
        self._reported: dict[Ticket, tuple[int, int]] = {}
        self._away_since: float | None = None
        self._refusal: ScribeError | None = None
        self._next_heartbeat = clock()

    def run(self) -> None:
        try:
            while not self._stopped():
                answered = self._answered(self._claim)
                if self._held:
                    self._watch()
                elif answered:
                    break
        finally:
            self._give_back()
        if self._refusal is not None:
            raise self._refusal

    def _claim(self) -> bool:
        asked = False
        while self._pool.idle and self._clock() < self._claim_until and self._refusal is None:
            units = next((units for source in self._sources if (units := source.claim(self._pool.idle))), ())
            asked = True
            if not units:
                break
            self._claimed = list(units)
            while self._claimed:
                unit = self._claimed[0]
                self._held[self._pool.submit(unit.task, *unit.arguments)] = unit
                del self._claimed[0]
        return asked

    def _watch(self) -> None:
        """Wait until a task ends, renewing leases and passing on progress; then finish what has ended."""
        heartbeat = self._lease_seconds / _HEARTBEATS_A_LEASE
        if self._clock() >= self._next_heartbeat:
            self._next_heartbeat = self._clock() + heartbeat
            for ticket in list(self._held):
                self._answered(partial(self._renew, ticket))
        for ticket in list(self._held):
            self._answered(partial(self._report, ticket))
        futures = {ticket.future: ticket for ticket in self._held}
        for future in wait(futures, timeout=min(_LOOK_SECONDS, heartbeat), return_when=FIRST_COMPLETED).done:
            self._answered(partial(self._finish, futures[future]))

    def _answered(self, ask: Callable[[], bool]) -> bool:
        """Run what says whether it has reached the database; False, after a while, if the database does not answer.

        A write that comes too late is dropped. What the house lacks is kept in mind, and no more is claimed.
        """
        reached = True
        try:
            reached = ask()
        except DatabaseError as error:
            if error.category is not Category.UNAVAILABLE:
                raise
            if self._away_since is None:
                self._away_since = self._clock()
                logger.warning("%s; waiting for it", error.message)
            if self._clock() - self._away_since >= self._lease_seconds:
                raise
            self._sleep(min(_LOOK_SECONDS, self._lease_seconds / _HEARTBEATS_A_LEASE))
            return False
        except ScribeError as error:
            if error.category is Category.UNAVAILABLE:
                self._refusal = self._refusal or error
            elif error.category is Category.LEASE_LOST:
                logger.warning("a write was dropped: %s", error.message)
            else:
                raise
        if reached:
            self._away_since = None
        return True

    def _renew(self, ticket: Ticket) -> bool:
        if not self._held[ticket].renew():
            logger.warning("a lease was lost; its work is dropped")
            self._release(ticket)
        return True

    def _report(self, ticket: Ticket) -> bool:
        counts = self._pool.progress(ticket)
        if self._reported.get(ticket, (0, 0)) == counts:
            return False
        try:
            self._held[ticket].progress(*counts)
        except ScribeError as error:
            if error.category is Category.LEASE_LOST:
                self._release(ticket)
            raise
        self._reported[ticket] = counts
        return True

    def _finish(self, ticket: Ticket) -> bool:
        unit = self._held[ticket]
        try:
            _end(unit, ticket)
        except DatabaseError:
            raise  # the result is kept until the database is back; if it stays away, the work is given back
        except ScribeError as error:
            self._release(ticket)
            if error.category is Category.UNAVAILABLE:
                # the house lacks something; the page is not to blame
                unit.fail(Category.INTERRUPTED, error.message)
            raise
        self._release(ticket)
        return True

    def _release(self, ticket: Ticket) -> None:
        del self._held[ticket]
        self._reported.pop(ticket, None)
        self._pool.release(ticket)

    def _give_back(self) -> None:
        units = [*self._claimed, *self._held.values()]
        for ticket in list(self._held):
            self._release(ticket)
        for unit in units:
            try:
                unit.fail(Category.INTERRUPTED, "the run was interrupted")
            except ScribeError as error:
                logger.warning("work was not given back and waits for its lease to run out: %s", error.message)


def _end(unit: Unit, ticket: Ticket) -> None:
    """Commit a task's result, or close its attempt."""
    try:
        result = ticket.result()
    except ScribeError as error:
        if error.category is Category.UNAVAILABLE:
            raise
        unit.fail(error.category if error.category.stored else Category.UNCLASSIFIED, error.message)
    except (ProcessExpired, CancelledError):
        unit.fail(Category.UNCLASSIFIED, "its worker process ended before the work was done")
    except Exception as error:
        # Whatever else an engine raises may pass. Its words may hold what no log may: a key, an address, the page's text.
        logger.error("an engine failed with %s", type(error).__name__)
        unit.fail(Category.UNCLASSIFIED, "the engine failed for a reason that is not known")
    else:
        _commit(unit, result)


def _commit(unit: Unit, result: Any) -> None:
    try:
        unit.finish(result)
    except ScribeError as error:
        if error.category in (Category.LEASE_LOST, Category.UNAVAILABLE):
            raise
        # This page cannot be written as it is; that is no reason to stop the others.
        logger.error("a result was refused: %s", error.message)
        unit.fail(error.category if error.category.stored else Category.UNCLASSIFIED, error.message)
