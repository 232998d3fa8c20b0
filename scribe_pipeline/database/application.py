"""The application database of a configuration: one's own, or the embedded server's, started if need be and migrated."""

from sqlalchemy import Engine

from scribe_pipeline.config import Settings
from scribe_pipeline.database.engine import connect, is_current, upgrade
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
    engine = connect(database_url(settings))
    if not is_current(engine):
        problem = "the database's schema is not the one this program knows: run scribe db upgrade, or a newer program"
        raise ScribeError(Category.FAILED_PRECONDITION, problem)
    return engine


def migrated_database(settings: Settings) -> Engine:
    """Return an engine for the application database, with all migrations run."""
    engine = connect(database_url(settings))
    if not is_current(engine):
        upgrade(engine)
    return engine
