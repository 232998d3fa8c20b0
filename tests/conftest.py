"""Fixtures that several kinds of tests share: a server, a database of one's own with the invariants checked at its end, houses."""

import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy import Engine, create_engine, text

from scribe_pipeline.database import EmbeddedServer, connect, is_current, sqlalchemy_url, upgrade
from scribe_pipeline.storage import audit_queries, gcs, named_queries
from tests.endings import Endings
from tests.fake_gcs import FakeGcs
from tests.houses import FakeEngines, House
from tests.mail_sink import MailSink
from tests.proofs import told

# However slow the machine is, what is drawn is all that makes a test fail; fixtures are there for all its examples.
settings.register_profile(
    "scribe", deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture]
)
settings.load_profile("scribe")

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
_TEMPLATE = f"scribe_template_{os.getpid()}"
# Holds the folder of this run's server, so that test runs which it starts itself use that server too.
_SERVER_FOLDER = "TEST_SERVER_FOLDER"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what the proofs of this run have counted."""
    if told:
        terminalreporter.section("proofs")
        for line in told:
            terminalreporter.line(line)


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """A server with a migrated database to copy: that of the run which started this one, or one that forgets everything."""
    lent = os.environ.get(_SERVER_FOLDER)
    with nullcontext(EmbeddedServer(Path(lent))) if lent else started_server(lend=True) as embedded:
        embedded.ensure_database(_TEMPLATE)
        engine = connect(embedded.url(_TEMPLATE))
        upgrade(engine)
        engine.dispose()
        yield embedded
        drop_database(embedded, _TEMPLATE)


@contextmanager
def started_server(*, lend: bool = False) -> Iterator[EmbeddedServer]:
    """An embedded server that forgets everything; its folder is one that any user may reach, as a server does not run as root.

    Test runs that this one starts may use it too, if it is to `lend`.
    """
    folder = Path(tempfile.mkdtemp(prefix="scribe-test-"))
    folder.chmod(0o755)
    embedded = EmbeddedServer(folder, durable=False)
    embedded.start()
    if lend:
        os.environ[_SERVER_FOLDER] = str(folder)
    yield embedded
    if lend:
        del os.environ[_SERVER_FOLDER]
    embedded.stop()
    shutil.rmtree(folder, ignore_errors=True)


def drop_database(server: EmbeddedServer, name: str) -> None:
    """Remove a database, whoever is connected to it."""
    admin = create_engine(sqlalchemy_url(server.url("postgres")), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"DROP DATABASE {name} WITH (FORCE)"))
    admin.dispose()


@pytest.fixture
def database_url(server: EmbeddedServer) -> Iterator[str]:
    """A migrated database for one test. When the test is over, no invariant may be broken in it."""
    with fresh_database(server) as url:
        yield url


@contextmanager
def fresh_database(server: EmbeddedServer) -> Iterator[str]:
    """A migrated database; when it is given up, no invariant may be broken in it."""
    name = f"test_{uuid.uuid4().hex}"
    admin = create_engine(sqlalchemy_url(server.url("postgres")), isolation_level="AUTOCOMMIT")
    with admin.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {_TEMPLATE}"))
    admin.dispose()
    yield server.url(name)
    broken = broken_invariants(server.url(name))
    drop_database(server, name)
    assert not broken, f"broken invariants: {broken}"


def broken_invariants(url: str) -> dict[str, list[tuple[object, ...]]]:
    """Ask for all invariants and return the rows that break an invariant, by its name."""
    with psycopg.connect(url) as connection:
        return broken_in(connection)


def broken_in(connection: psycopg.Connection[tuple[object, ...]]) -> dict[str, list[tuple[object, ...]]]:
    """The same through a connection that is there already. All queries are sent at once."""
    answers = connection.execute(";".join(invariants().values())).results()
    found = {name: answer.fetchall() for name, answer in zip(invariants(), answers, strict=True)}
    return {name: rows for name, rows in found.items() if rows}


def invariants() -> dict[str, str]:
    """The queries of `tests/invariants.sql` and of the storage audit by their names; each returns the rows that break it."""
    return named_queries((ROOT / "tests" / "invariants.sql").read_text()) | audit_queries()


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """The test's database."""
    made = connect(database_url)
    yield made
    made.dispose()


@pytest.fixture
def house(engine: Engine, tmp_path: Path) -> House:
    """The test's database and a blob store, with shortcuts to images, pages and jobs."""
    return House(engine, tmp_path / "blobs")


@pytest.fixture
def operator(house: House, database_url: str) -> dict[str, str]:
    """The environment of commands that work on the house's database."""
    return house.environment(database_url)


@pytest.fixture
def impatient(house: House) -> House:
    """The same house, whose sessions wait for no lock longer than half a second: who would wait is refused with 55P03."""
    house.execute(
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET lock_timeout = 500', current_database()); END $$",
    )
    house.engine.dispose()
    return house


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> FakeEngines:
    """Engines that answer at once, in place of the registered ones."""
    fake = FakeEngines()
    monkeypatch.setattr("scribe_pipeline.engines.tasks.segmentor", fake.segmentor)
    monkeypatch.setattr("scribe_pipeline.engines.tasks.transcriber", fake.transcriber)
    return fake


@pytest.fixture
def fake_gcs(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGcs]:
    """A Google Cloud Storage with a bucket `scans`, which this process and those that it starts find by their environment."""
    with FakeGcs() as fake:
        for name, value in fake.environment.items():
            monkeypatch.setenv(name, value)
        # a client remembers where its service is
        gcs._client_of.cache_clear()
        yield fake
        gcs._client_of.cache_clear()


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a `scribe` command with a home of its own. At the end the invariants hold, and its server is stopped."""
    home = Path(tempfile.mkdtemp(prefix="scribe-home-"))
    home.chmod(0o755)
    yield {name: value for name, value in os.environ.items() if not name.startswith("SCRIBE_")} | {"SCRIBE_HOME": str(home)}
    embedded = EmbeddedServer(home / "postgres")
    broken = broken_invariants(embedded.url("scribe")) if embedded.running() and is_migrated(embedded) else {}
    embedded.stop()
    shutil.rmtree(home, ignore_errors=True)
    assert not broken, f"broken invariants: {broken}"


def is_migrated(server: EmbeddedServer) -> bool:
    """Whether a command has brought the server's database up to date."""
    engine = connect(server.url("scribe"))
    try:
        return is_current(engine)
    finally:
        engine.dispose()


@pytest.fixture
def endings(house: House) -> Iterator[Endings]:
    """Jobs that end in a house that has been scanned for long, with a mail server. At the end I13 and I14 hold."""
    with MailSink() as sink:
        made = Endings(house, sink)
        made.active()
        yield made
        made.check()
