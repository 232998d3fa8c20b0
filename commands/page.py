"""`scribe page`: a page's revisions, read and saved by hand."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from commands.output import load_settings, operator, read_id
from scribe_pipeline.errors import Category, ScribeError

app = typer.Typer(help="Pages and their revisions.", no_args_is_help=True)

ImageArgument = Annotated[str, typer.Argument(metavar="IMAGE")]


@app.command("show")
def show(
    image_id: ImageArgument,
    revision: Annotated[int | None, typer.Option(min=1, help="Which one; the newest without it.")] = None,
) -> None:
    """Print a revision of a page as an AnnotationPage; its number goes to standard error."""
    from scribe_pipeline.database import migrated_database
    from scribe_pipeline.pages import load_revision

    with migrated_database(load_settings()).connect() as connection:
        page = load_revision(connection, read_id(image_id, "image"), revision)
    typer.echo(f"revision {page.revision}", err=True)
    typer.echo(page.payload)


@app.command("save")
def save(
    image_id: ImageArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The whole AnnotationPage as JSON; - reads standard input.")],
    revision: Annotated[int, typer.Option(min=1, help="The revision that was corrected.")],
) -> None:
    """Save a corrected page and print its new revision; refused if somebody has saved another one meanwhile."""
    from scribe_pipeline.database import migrated_database
    from scribe_pipeline.pages import save_page

    try:
        payload = (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode()
    except OSError as error:
        raise ScribeError(Category.INVALID_ARGUMENT, f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScribeError(Category.INVALID_ARGUMENT, f"{file} is no text in UTF-8") from None
    key = read_id(image_id, "image")
    typer.echo(save_page(migrated_database(load_settings()), key, revision, payload, operator().name))
