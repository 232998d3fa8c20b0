"""`scribe db`: the application database and, if there is none of one's own, the embedded server."""

import os
import sys

import typer
from sqlalchemy import URL, make_url

from commands.output import load_settings

app = typer.Typer(help="The application database.", no_args_is_help=True)


@app.command()
def upgrade() -> None:
    """Start the server if need be and run the migrations."""
    from scribe_pipeline.database import migrated_database

    migrated_database(load_settings()).dispose()


@app.command()
def url() -> None:
    """Start the server if need be and print the database's URL, which any PostgreSQL client takes."""
    from scribe_pipeline.database import database_url

    typer.echo(database_url(load_settings()))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def psql(context: typer.Context) -> None:
    """Open psql on the database; what follows is handed on to it."""
    from scribe_pipeline.database import binary, database_url

    address = make_url(database_url(load_settings()))
    # not on the command line, which every user of the machine can read
    environment = os.environ | ({"PGPASSWORD": str(address.password)} if address.password else {})
    shown = URL.create(address.drivername, address.username, None, address.host, address.port, address.database, address.query)
    sys.stdout.flush()
    os.execve(binary("psql"), ["psql", shown.render_as_string(), *context.args], environment)


@app.command()
def stop() -> None:
    """Stop the embedded server."""
    from scribe_pipeline.database import EmbeddedServer
    from scribe_pipeline.errors import Category, ScribeError

    settings = load_settings()
    if settings.database_url is not None:
        raise ScribeError(Category.FAILED_PRECONDITION, "SCRIBE_DATABASE_URL names a server that is not Scribe's to stop")
    stopped = EmbeddedServer(settings.home / "postgres").stop()
    typer.echo("stopped" if stopped else "it was not running")
