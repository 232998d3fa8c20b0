"""The loop that keeps the engines busy: claim, hand to a worker process, renew the lease meanwhile, finish.

What a unit of work is, a source says; nothing here knows a table. No transaction is open while an engine runs.
"""

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, wait
from functools import partial
from typing import Any, Protocol

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
        """Commit the task's result."""

    def fail(self, category: Category, message: str) -> None:
        """Give the work back for a retry, or end it, as the category says."""


class Source(Protocol):
    """Where units come from."""

    def claim(self) -> Unit | None:
        """Take the next unit that needs an engine; None when nothing is due."""


def drain(
    sources: Sequence[Source],
    pool: EnginePool,
    lease_seconds: float,
    claim_seconds: float,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Work until no source has anything due, or until `claim_seconds` have gone by and what was claimed is finished.

    Sources are asked in their order, so that the first one's work is finished before the next one's is begun. On any
    exception, an interrupt too, what is held is given back for a retry before it passes on.
    """
    stop_claiming = clock() + claim_seconds
    running: dict[Ticket, Unit] = {}
    try:
        while True:
            while pool.idle and clock() < stop_claiming:
                unit = next((unit for source in sources if (unit := source.claim())), None)
                if unit is None:
                    break
                running[pool.submit(unit.task, *unit.arguments)] = unit
            if not running:
                return
            _watch(running, pool, lease_seconds / _HEARTBEATS_A_LEASE, clock)
    except BaseException:
        for ticket, unit in running.items():
            pool.release(ticket)
            try:
                unit.fail(Category.INTERRUPTED, "the run was interrupted")
            except ScribeError as error:
                logger.warning("work was not given back and waits for its lease to run out: %s", error.message)
        raise


def _watch(running: dict[Ticket, Unit], pool: EnginePool, heartbeat: float, clock: Callable[[], float]) -> None:
    """Wait until a task ends, renewing leases and passing on progress; then finish what has ended."""
    futures = {ticket.future: ticket for ticket in running}
    reported: dict[Ticket, tuple[int, int]] = {}
    next_heartbeat = clock()
    done: set[Any] = set()
    while running and not done:
        if clock() >= next_heartbeat:
            next_heartbeat = clock() + heartbeat
            lost = [ticket for ticket, unit in running.items() if not _renewed(unit)]
            for ticket in lost:
                logger.warning("a lease was lost; its work is dropped")
                pool.release(ticket)
                del running[ticket]
            if lost:
                return
        for ticket, unit in running.items():
            counts = pool.progress(ticket)
            if reported.get(ticket, (0, 0)) != counts:
                reported[ticket] = counts
                report = partial(unit.progress, *counts)
                _settle(report, dropped=(Category.LEASE_LOST, Category.UNAVAILABLE))
        done = wait(futures, timeout=min(_LOOK_SECONDS, heartbeat), return_when=FIRST_COMPLETED).done
    for future in done:
        ticket = futures[future]
        unit = running[ticket]
        _settle(partial(_finish, unit, future))
        del running[ticket]
        pool.release(ticket)


def _finish(unit: Unit, future: Any) -> None:
    try:
        result = future.result()
    except ScribeError as error:
        if error.category is Category.UNAVAILABLE:
            raise  # the house lacks something; the page is not to blame
        unit.fail(error.category if error.category.stored else Category.UNCLASSIFIED, error.message)
    except (ProcessExpired, CancelledError):
        unit.fail(Category.UNCLASSIFIED, "its worker process ended before the work was done")
    except Exception:
        # Whatever else an engine raises is told in the log, and may pass.
        logger.exception("an engine failed")
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


def _renewed(unit: Unit) -> bool:
    """Whether the unit's lease is not known to be lost; a database that does not answer just now has not lost it."""
    try:
        return unit.renew()
    except ScribeError as error:
        if error.category is not Category.UNAVAILABLE:
            raise
        logger.warning("a lease could not be renewed: %s", error.message)
        return True


def _settle(write: Callable[[], None], *, dropped: Sequence[Category] = (Category.LEASE_LOST,)) -> None:
    """Run a write; one that comes too late is dropped, as it must be."""
    try:
        write()
    except ScribeError as error:
        if error.category not in dropped:
            raise
        logger.warning("a write was dropped: %s", error.message)
