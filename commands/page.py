"""`scribe page`: a page's revisions, read, saved by hand and exported."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from commands.output import indented, load_settings, operator, read_id
from scribe_pipeline.errors import Category, ScribeError

app = typer.Typer(help="Pages and their revisions.", no_args_is_help=True)

MAX_REVISION = 2**31 - 2
ImageArgument = Annotated[str, typer.Argument(metavar="IMAGE")]


@app.command("show")
def show(
    image_id: ImageArgument,
    revision: Annotated[int | None, typer.Option(min=1, max=MAX_REVISION, help="Which one; the newest without it.")] = None,
) -> None:
    """Print a revision of a page as an AnnotationPage; its number goes to standard error.

    It is indented, to be corrected by hand; what is saved is stored without white space, as it was.
    """
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.pages import load_revision

    key = read_id(image_id, "image")
    engine = current_database(load_settings())
    page = in_transaction(engine, lambda connection: load_revision(connection, key, revision))
    typer.echo(f"revision {page.revision}", err=True)
    # UTF-8 whatever the terminal's encoding, as that is what `page save` takes
    typer.echo(indented(page.payload).encode())


@app.command("save")
def save(
    image_id: ImageArgument,
    file: Annotated[str, typer.Argument(metavar="FILE", help="The whole AnnotationPage as JSON; - reads standard input.")],
    revision: Annotated[int, typer.Option(min=1, max=MAX_REVISION, help="The revision that was corrected.")],
) -> None:
    """Save a corrected page and print its new revision; refused if somebody has saved another one meanwhile."""
    from scribe_pipeline.database import current_database
    from scribe_pipeline.pages import save_page

    try:
        payload = (sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()).decode()
    except OSError as error:
        raise ScribeError(Category.INVALID_ARGUMENT, f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ScribeError(Category.INVALID_ARGUMENT, f"{file} is no text in UTF-8") from None
    key = read_id(image_id, "image")
    engine, author = current_database(load_settings()), operator().name
    try:
        typer.echo(save_page(engine, key, revision, payload, author))
    except ScribeError as error:
        if error.category is not Category.INVALID_ARGUMENT:
            raise
        raise ScribeError(error.category, f"{'standard input' if file == '-' else file}: {error.message}") from None


@app.command("export")
def export(
    image_id: ImageArgument,
    revision: Annotated[int, typer.Option(min=1, max=MAX_REVISION, help="The revision that the page is at.")],
    formats: Annotated[
        list[str] | None, typer.Option("--format", metavar="NAME", help="alto, page, hocr, txt or json; may be given again.")
    ] = None,
    to: Annotated[Path | None, typer.Option(metavar="DIR", help="Write files here; a single format may go to the output.")] = None,
) -> None:
    """Export a page, in all formats if none is named; refused if it is at another revision by now."""
    from scribe_pipeline.database import current_database, in_transaction
    from scribe_pipeline.exports import FORMATS, check_folder, check_formats, current_page, export_stems, render, write_files

    key, names = read_id(image_id, "image"), list(dict.fromkeys(formats or FORMATS))
    check_formats(names)
    if to is None and len(names) > 1:
        raise ScribeError(Category.INVALID_ARGUMENT, "only one format can be printed: name it with --format, or a folder with --to")
    if to is not None:
        check_folder(to)
    engine = current_database(load_settings())
    image, page = in_transaction(engine, lambda connection: current_page(connection, key, revision))
    exports = render(image, page, names)
    if to is None:
        sys.stdout.buffer.write(exports[names[0]])
    else:
        place = (image.file, image.frame)
        for file in write_files(to, export_stems([place])[place], exports):
            typer.echo(file)
