"""The application database of a configuration: one's own, or the embedded server's, started if need be and migrated."""

from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import Engine

from scribe_pipeline.config import Settings
from scribe_pipeline.database.engine import DatabaseError, connect, is_current, schema_version, upgrade
from scribe_pipeline.database.server import EmbeddedServer
from scribe_pipeline.errors import Category, ScribeError

_EMBEDDED_DATABASE = "scribe"


def database_url(settings: Settings) -> str:
    """Return the application database's libpq URL, having seen to it that the embedded server runs if that is the one."""
    if settings.database_url is not None:
        return settings.database_url
    server = EmbeddedServer(settings.home / "postgres")
    server.start()
    server.ensure_database(_EMBEDDED_DATABASE)
    return server.url(_EMBEDDED_DATABASE)


def current_database(settings: Settings) -> Engine:
    """Return an engine for the application database. Raises ScribeError if its schema is not the one that this program knows."""
    engine, current = _opened(settings)
    if not current:
        problem = "the database's schema is not the one this program knows: run scribe db upgrade, or a newer program"
        raise ScribeError(Category.FAILED_PRECONDITION, problem if schema_version(engine) else _empty(settings))
    return engine


def migrated_database(settings: Settings) -> Engine:
    """Return an engine for the application database, with all migrations run."""
    engine, current = _opened(settings)
    if not current:
        upgrade(engine)
    return engine


def _opened(settings: Settings) -> tuple[Engine, bool]:
    """Return an engine and whether the database has all migrations. Raises DatabaseError, which names the variable if it is set."""
    engine = connect(database_url(settings))
    try:
        return engine, is_current(engine)
    except DatabaseError as error:
        if settings.database_url is None or error.category is not Category.UNAVAILABLE:
            raise
        told = f"{error.message} in SCRIBE_DATABASE_URL, which names {_place(settings.database_url)}"
        raise DatabaseError(error.category, told, error.sqlstate, error.constraint) from None


def _empty(settings: Settings) -> str:
    if settings.database_url is None:
        problem, variable = f"the database in {settings.home} is empty", "SCRIBE_HOME"
    else:
        # tables of other services may be there
        problem, variable = f"{_place(settings.database_url)} is empty of Scribe's tables", "SCRIBE_DATABASE_URL"
    return f"{problem}: scribe run or scribe db upgrade fills it; if pages should be there, look at {variable}"


def _place(url: str) -> str:
    """Say which database a URL names, without who enters it and how."""
    parts = conninfo_to_dict(url)
    address = ":".join(str(parts[part]) for part in ("host", "port") if part in parts)
    return f"the database {parts.get('dbname', '')}".rstrip() + (f" at {address}" if address else "")
