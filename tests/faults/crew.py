"""Worker processes that run the product's own loops for ever, and can be killed or stopped like any other."""

import logging
import os
import random
import signal
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import quote

from sqlalchemy import Engine

from scribe_pipeline.database import DatabaseError, connect, new_lease
from scribe_pipeline.engines import LineText, ReadingOptions, Ticket, tasks
from scribe_pipeline.engines.images import Pixels
from scribe_pipeline.jobs import TranscriptionSource, drain
from tests.houses import InlinePool

LEASE_SECONDS = 0.4
# How often a page's second line is blank.
_BLANK = 0.1


class Reader:
    """An engine that takes a few milliseconds a line, and now and then leaves a page's second line blank."""

    engine = "fake 1.0"
    concurrent = False
    proven = None

    def __init__(self, moods: random.Random) -> None:
        self._moods = moods
        self._read = 0

    def transcribe(self, crop: Pixels, options: ReadingOptions) -> LineText:
        """Stand in for a transcriber."""
        time.sleep(self._moods.uniform(0.001, 0.005))
        self._read += 1
        return LineText("" if self._read % 3 == 2 and self._moods.random() < _BLANK else "text", 0.5)


class LatePool(InlinePool):
    """Lets time pass between a lease's renewal and the writes after it; two tasks can take more than the lease lasts."""

    def __init__(self, moods: random.Random) -> None:
        super().__init__()
        self._moods = moods

    def progress(self, ticket: Ticket) -> tuple[int, int]:
        """One line is done, and it has taken its time."""
        time.sleep(self._moods.uniform(0, LEASE_SECONDS))
        return 1, 0


@dataclass(frozen=True)
class Workplace:
    """What the workers of one database share; `log` takes what they warn of."""

    url: str
    store_url: str
    log: Path


# One turn of a worker's work, over and over; what it is made from is the worker's own.
Turn = Callable[[], None]
Duty = Callable[[Workplace, random.Random], Turn]


class Worker:
    """A worker process. It is forked, so that it is at work within milliseconds."""

    def __init__(self, place: Workplace, seed: int, duty: Duty) -> None:
        boss = os.getpid()
        self.stopped_at: float | None = None
        self.pid = os.fork()
        if self.pid == 0:
            try:
                _work(place, duty(place, random.Random(seed)), boss)
            finally:
                os._exit(1)

    @property
    def owner(self) -> str:
        """How its leases name it."""
        return f"{socket.gethostname()}:{self.pid}"

    def stop(self) -> None:
        """Let it run no further, wherever it is."""
        os.kill(self.pid, signal.SIGSTOP)
        self.stopped_at = time.monotonic()

    def resume(self) -> None:
        """Let it run on, as if no time had passed."""
        os.kill(self.pid, signal.SIGCONT)
        self.stopped_at = None

    def kill(self) -> bool:
        """End it at once; False if it had ended by itself."""
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        return os.WIFSIGNALED(status)


def named_engine(place: Workplace) -> Engine:
    """The worker's connections; its sessions bear the name that its leases bear."""
    return connect(f"{place.url}?application_name={quote(new_lease(0).owner)}")


def read_pages(place: Workplace, moods: random.Random) -> Turn:
    """Drain the queue of jobs."""
    tasks.transcriber = lambda *_: Reader(moods)  # type: ignore[assignment]
    source = TranscriptionSource(named_engine(place), place.store_url, LEASE_SECONDS, lambda _: None)
    return partial(drain, [source], LatePool(moods), LEASE_SECONDS, 60)


def read_in_time(place: Workplace, moods: random.Random) -> Turn:
    """Drain the queue of jobs as one does who is never late."""
    tasks.transcriber = lambda *_: Reader(moods)  # type: ignore[assignment]
    source = TranscriptionSource(named_engine(place), place.store_url, 60, lambda _: None)
    return partial(drain, [source], InlinePool(), 60, 60)


def _work(place: Workplace, turn: Turn, boss: int) -> None:
    """Take one turn after the other, for as long as the process lives that has forked this one."""
    log = logging.getLogger("scribe_pipeline")
    log.addHandler(logging.FileHandler(place.log))
    while os.getppid() == boss:
        try:
            turn()
        except DatabaseError as error:
            log.warning("the loop ended: %s", error.message)
        except BaseException:
            log.exception("a worker has ended by itself")
            raise
        time.sleep(0.05)


@contextmanager
def crew(place: Workplace, moods: random.Random, count: int, duty: Duty) -> Iterator[list[Worker]]:
    """So many workers; whoever is in the list at the end is killed."""
    workers = [Worker(place, moods.randrange(10**9), duty) for _ in range(count)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
