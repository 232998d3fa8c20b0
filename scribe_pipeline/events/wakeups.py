"""Wake-ups between processes. They are hints: one that is lost costs its receiver a poll interval, nothing else."""

import logging
import time
from enum import StrEnum

import psycopg
from sqlalchemy import Engine, exc, text

from scribe_pipeline.database import PATIENCE

logger = logging.getLogger(__name__)


class Channel(StrEnum):
    """What somebody may wait for."""

    JOBS = "scribe_jobs"


def wake(engine: Engine, channel: Channel) -> None:
    """Wake whoever waits on the channel. To be called after the commit: inside a transaction NOTIFY has commits queue up."""
    try:
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text(f"NOTIFY {channel.value}"))
    except exc.DBAPIError:
        logger.warning("a wake-up was not sent; whoever waits looks by himself")


class Listener:
    """A connection of its own that hears one channel; without a database it hears nothing, and tries anew with each wait."""

    def __init__(self, url: str, channel: Channel) -> None:
        self._url = url
        self._channel = channel
        self._connection: psycopg.Connection | None = None

    def wait(self, seconds: float) -> bool:
        """Wait for a wake-up, `seconds` at most; True if one came, or may have come unheard."""
        try:
            if self._connection is None:
                self._connection = psycopg.connect(self._url, autocommit=True, **PATIENCE)
                self._connection.execute(f"LISTEN {self._channel.value}")
                return True
            return any(True for _ in self._connection.notifies(timeout=seconds, stop_after=1))
        except psycopg.OperationalError:
            self.close()
            time.sleep(seconds)
            return False

    def close(self) -> None:
        """Hear no more."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
