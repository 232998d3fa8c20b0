"""The worker processes: each loads an engine once, uses one thread, and ends when the process that started it does."""

import itertools
import logging
import multiprocessing
import os
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from pebble import ProcessExpired, ProcessPool

from scribe_pipeline.errors import Category, ScribeError

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
_SLOTS = 1024
# A task that is told to stop does so between lines; one that has no lines is stopped with its process, after so many seconds.
_GRACE_SECONDS = 6
# What parent and worker say of a task: successful lines, failed lines, whether it is to stop.
_WORDS = 3
_counters: Any = None
_slot = 0


@dataclass(frozen=True)
class Ticket:
    """A task handed to the pool: its future, and where it counts its lines."""

    future: Future[Any]
    slot: int

    def result(self) -> Any:
        """Return what the task has returned. Raises what it has raised, or ProcessExpired, or CancelledError."""
        try:
            return self.future.result()
        except ScribeError as error:
            # its sentence is all there is to say; pebble gives it the worker's traceback as a cause, which would be told instead
            raise error from None


class EnginePool:
    """Up to `workers` tasks at once; `idle` says how many more. The processes start with the first task.

    A task whose process dies fails with `ProcessExpired`; the others go on.
    """

    def __init__(self, workers: int) -> None:
        context = multiprocessing.get_context("spawn")
        # Plain shared memory: a worker killed while it counts can leave no lock behind. Its place is not used again for long,
        # so that what it still writes is not taken for the next task's.
        self._counters = context.RawArray("i", _WORDS * _SLOTS)
        self._slots = itertools.cycle(range(_SLOTS))
        self.idle = workers
        self._pool = ProcessPool(workers, initializer=_begin, initargs=(self._counters,), context=context)

    def submit(self, task: Callable[..., Any], *arguments: Any) -> Ticket:
        """Run `task`, a function of a module, in a worker process; one that is `idle`, if there is one."""
        self.idle -= 1
        slot = next(self._slots)
        self._counters[_WORDS * slot : _WORDS * (slot + 1)] = [0, 0, 0]
        return Ticket(self._pool.schedule(_run, (slot, task, arguments)), slot)

    def progress(self, ticket: Ticket) -> tuple[int, int]:
        """Return how many lines the task has read and how many it could not read so far."""
        succeeded, failed, _ = self._counters[_WORDS * ticket.slot : _WORDS * (ticket.slot + 1)]
        return succeeded, failed

    def release(self, ticket: Ticket) -> None:
        """Give the ticket's place to another task, telling this one to stop if it is still busy."""
        if not ticket.future.done():
            self._counters[_WORDS * ticket.slot + 2] = 1
            last_word = threading.Timer(_GRACE_SECONDS, ticket.future.cancel)
            last_word.daemon = True
            last_word.start()
        self.idle += 1

    def stop(self) -> None:
        """End the worker processes at once."""
        self._pool.stop()
        self._pool.join()


def report_progress(succeeded: int, failed: int) -> None:
    """Count the lines of the task that runs in this process, if it is a worker.

    Raises ScribeError (canceled) if the task is to stop: nobody wants its result any more.
    """
    if _counters is not None:
        _counters[_WORDS * _slot : _WORDS * _slot + 2] = [succeeded, failed]
        if _counters[_WORDS * _slot + 2]:
            raise ScribeError(Category.CANCELED, "the work is no longer wanted")


def _begin(counters: Any) -> None:
    global _counters
    _counters = counters
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, "1"))
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    # Libraries in C print what they think of a damaged file; all that matters of it is in the task's answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # A SIGKILLed parent runs no clean-up, and a busy worker reads no pipe: without this it would outlive the parent.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _run(slot: int, task: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    global _slot
    _slot = slot
    return task(*arguments)


__all__ = ["EnginePool", "ProcessExpired", "Ticket", "report_progress"]
