"""The points at which an operation talks to the database, and what can strike its worker there."""

import os
import signal
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import psutil
import psycopg
from sqlalchemy import Connection, Engine, event, text

from scribe_pipeline.database import EmbeddedServer, connect
from tests.proofs import wait_until

Strike = Callable[[psycopg.Connection], None]
BEFORE_COMMIT, AFTER_COMMIT = "before COMMIT", "after COMMIT"


class Watch:
    """Lists the points that a worker's engine passes and the lease tokens that it sends, and strikes at one of the points."""

    def __init__(self, engine: Engine, strike: Strike | None = None, at: int = -1) -> None:
        self.points: list[str] = []
        self.tokens: set[str] = set()
        self._strike = strike
        self._at = at
        self._commit = engine.dialect.do_commit
        event.listen(engine, "before_cursor_execute", self._before)
        event.listen(engine, "after_cursor_execute", self._after)
        engine.dialect.do_commit = self._around_commit  # type: ignore[method-assign]

    def _pass(self, point: str, driver: Any) -> None:
        self.points.append(point)
        if self._strike is not None and len(self.points) - 1 == self._at:
            self._strike(driver.dbapi_connection)

    def _before(self, connection: Connection, _cursor: object, sql: str, parameters: Any, *_rest: object) -> None:
        for values in parameters if isinstance(parameters, list) else [parameters]:
            self.tokens |= set(_tokens(values))
        self._pass(f"before {_head(sql)}", connection.connection)

    def _after(self, connection: Connection, _cursor: object, sql: str, *_rest: object) -> None:
        self._pass(f"after {_head(sql)}", connection.connection)

    def _around_commit(self, driver: Any) -> None:
        self._pass(BEFORE_COMMIT, driver)
        self._commit(driver)
        self._pass(AFTER_COMMIT, driver)


def _head(sql: str) -> str:
    return " ".join(sql.split())[:60]


def _tokens(values: Mapping[str, Any]) -> Iterable[str]:
    return (str(value) for name, value in values.items() if "token" in name and value is not None)


class Striker:
    """What can happen to the workers of one server."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self.kinds: Mapping[str, Strike] = {
            "SIGKILL": self.kill,
            "terminated session": self.terminate,
            "cut connection": self.cut,
            "server restart": self.restart,
            "lost answer": self.lose_answer,
        }

    def kill(self, _driver: psycopg.Connection) -> None:
        """End this very process; it is a child that was forked to die."""
        os.kill(os.getpid(), signal.SIGKILL)

    def terminate(self, driver: psycopg.Connection) -> None:
        """Have the server end the worker's session."""
        admin = connect(self._server.url("postgres"))
        # only a transaction that begins anew sees who is gone by now
        with admin.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            told = {"pid": driver.info.backend_pid}
            connection.execute(text("SELECT pg_terminate_backend(:pid)"), told)
            session = text("SELECT count(*) FROM pg_stat_activity WHERE pid = :pid")
            wait_until(lambda: not connection.scalar(session, told), "the end of the session")
        admin.dispose()

    def cut(self, driver: psycopg.Connection) -> None:
        """Cut the worker's connection in both directions."""
        with socket.socket(fileno=os.dup(driver.fileno())) as wire:
            wire.shutdown(socket.SHUT_RDWR)

    def lose_answer(self, driver: psycopg.Connection) -> None:
        """Right after a COMMIT, end it for the worker in what the driver raises when no answer comes."""
        self.cut(driver)
        driver.execute("SELECT")

    def restart(self, driver: psycopg.Connection) -> None:
        """Stop the server as `pg_ctl stop -m immediate` does, so that it has crashed, and start it again."""
        postmaster = psutil.Process(driver.info.backend_pid).parent()
        assert postmaster is not None
        postmaster.send_signal(signal.SIGQUIT)
        wait_until(lambda: not self._server.running(), "the server's end")
        self._server.start()
