"""Connections, transactions and migrations. No statement about an application table belongs here."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import resources
from typing import TYPE_CHECKING, Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import (
    ARRAY,
    URL,
    Column,
    ColumnElement,
    Connection,
    Engine,
    any_,
    create_engine,
    event,
    exc,
    literal,
    make_url,
    text,
)

from scribe_pipeline.database.jsontext import load_json
from scribe_pipeline.errors import Category, ScribeError

if TYPE_CHECKING:
    from alembic.config import Config

T = TypeVar("T")

_DEADLOCK, _SERIALIZATION = "40P01", "40001"
# Connection failures, a server that stops or starts, a session that was ended for its silence.
_UNREACHED = ("08", "57P", "25P03")
_TRANSACTION_TRIES = 5
# How long a session may do nothing inside a transaction; none of ours waits for anything but the database.
_MAX_SILENCE_SECONDS = 60
# How long a server that has vanished without a word is waited for: 10 s to connect, 15 s (it is in ms) for what was sent.
PATIENCE: dict[str, Any] = {
    "connect_timeout": 10,
    "tcp_user_timeout": 15_000,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 2,
}
# One key for all who migrate: two processes that start together must not both run a migration.
_MIGRATION_LOCK = 7_274_501


class DatabaseError(ScribeError):
    """A statement that the database refused, or a server that does not answer.

    `sqlstate` is PostgreSQL's code or None; `constraint` names what was violated. The driver's own words are left
    behind: they print the failing row, lease token and all.
    """

    def __init__(self, category: Category, message: str, sqlstate: str | None = None, constraint: str | None = None) -> None:
        super().__init__(category, message)
        self.sqlstate = sqlstate
        self.constraint = constraint

    def __reduce__(self) -> tuple[type["DatabaseError"], tuple[Category, str, str | None, str | None]]:  # type: ignore[override]
        return type(self), (self.category, self.message, self.sqlstate, self.constraint)


def sqlalchemy_url(url: str, driver: str = "psycopg") -> URL:
    """Return a libpq URL with the driver spelled out. Raises ScribeError when it is no PostgreSQL URL."""
    try:
        parsed = make_url(url)
        conninfo_to_dict(url)
    except (exc.ArgumentError, ValueError, psycopg.ProgrammingError):
        parsed = None
    if parsed is None or parsed.get_backend_name() not in ("postgresql", "postgres"):
        raise ScribeError(Category.INVALID_ARGUMENT, "SCRIBE_DATABASE_URL is not of the form postgresql://user@host:port/database")
    return parsed.set(drivername=f"postgresql+{driver}")


def sibling_url(url: str, suffix: str) -> str:
    """Return the URL of the database beside this one, whose name ends in `suffix`; make that database if it is not there.

    Raises DatabaseError when the role may not create it.
    """
    parsed = sqlalchemy_url(url)
    name = f"{parsed.database}{suffix}"
    engine = create_engine(parsed, isolation_level="AUTOCOMMIT", hide_parameters=True)
    try:
        with engine.connect() as connection:
            if not connection.scalar(text("SELECT true FROM pg_database WHERE datname = :name"), {"name": name}):
                quoted = engine.dialect.identifier_preparer.quote_identifier(name)
                # somebody else may make it in the meantime
                with suppress(exc.IntegrityError):
                    connection.execute(text(f"CREATE DATABASE {quoted}"))
    except exc.DBAPIError as error:
        raise translated(error, f"cannot create the database {name}: create it, or let the role do so") from None
    finally:
        engine.dispose()
    return parsed.set(drivername="postgresql", database=name).render_as_string(hide_password=False)


def connect(url: str) -> Engine:
    """Return an engine for a libpq URL. Nothing is opened yet.

    A process that hangs inside a transaction loses its session after a minute, so that the rows it has locked are free.
    """
    engine = create_engine(
        sqlalchemy_url(url),
        pool_size=4,
        pool_pre_ping=True,
        hide_parameters=True,
        json_deserializer=load_json,
        connect_args=PATIENCE,
    )
    event.listen(engine, "connect", _bound_silence)
    return engine


def _bound_silence(connection: Any, _: object) -> None:
    connection.execute(f"SET idle_in_transaction_session_timeout = '{_MAX_SILENCE_SECONDS}s'")
    connection.commit()


def one_of(column: Column[Any], values: Sequence[Any]) -> ColumnElement[bool]:
    """True where the column has one of the values, however many; `in_` has a parameter for each, and no more than 65,535."""
    return column == any_(literal(list(values), ARRAY(column.type)))


def in_transaction(engine: Engine, work: Callable[[Connection], T]) -> T:
    """Run `work` in one READ COMMITTED transaction and return what it returns.

    The whole transaction is tried again after a deadlock or a serialization failure, so `work` may run several times.
    Raises DatabaseError for what the database refuses; errors that `work` raises itself roll back and pass through.
    """
    for tries_left in reversed(range(_TRANSACTION_TRIES)):
        try:
            with engine.begin() as connection:
                return work(connection)
        except exc.DBAPIError as error:
            ours = translated(error)
            if ours.sqlstate not in (_DEADLOCK, _SERIALIZATION) or not tries_left:
                raise ours from None
    raise AssertionError("unreachable")


def upgrade(engine: Engine) -> None:
    """Run the migrations that the database does not have yet."""
    from alembic import command

    config = _alembic_config()

    def migrate(connection: Connection) -> None:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _MIGRATION_LOCK})
        config.attributes["connection"] = connection
        command.upgrade(config, "head")

    in_transaction(engine, migrate)


def is_current(engine: Engine) -> bool:
    """Whether the database has all migrations. Raises DatabaseError if it does not answer.

    It is asked by every command, so Alembic, which takes long to load, has no part in it: migrations are named by their number.
    """
    versions = resources.files("migrations").joinpath("versions")
    newest = max(file.name for file in versions.iterdir() if file.name.endswith(".sql"))
    return schema_version(engine) == newest.partition("_")[0]


def schema_version(engine: Engine) -> str | None:
    """Return the number of the newest migration that the database has, None if it never had any. Raises DatabaseError."""

    def version(connection: Connection) -> str | None:
        there = connection.scalar(text("SELECT to_regclass('alembic_version') IS NOT NULL"))
        return connection.scalar(text("SELECT version_num FROM alembic_version")) if there else None

    return in_transaction(engine, version)


def _alembic_config() -> "Config":
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(resources.files("migrations")))
    return config


def translated(error: exc.DBAPIError, message: str | None = None) -> DatabaseError:
    """Return our own error for one of the driver's, to be raised `from None`. What is no error of the database's is raised."""
    sqlstate = getattr(error.orig, "sqlstate", None)
    if sqlstate is None and not isinstance(error, exc.OperationalError | exc.InterfaceError):
        raise error  # our own mistake, found by the driver before the server saw it
    constraint = getattr(getattr(error.orig, "diag", None), "constraint_name", None)
    if sqlstate is None or sqlstate.startswith(_UNREACHED):
        category = Category.UNAVAILABLE
        reason = "the database does not answer, or refuses the connection: check its address, name, user and password"
    else:
        category, reason = Category.FAILED_PRECONDITION, f"the database refused a statement ({constraint or sqlstate})"
    return DatabaseError(category, message or reason, sqlstate, constraint)
