"""`--metadata`: what is known of an item when it comes in, by which rules choose its context."""

from collections.abc import Sequence
from typing import Annotated

import typer

from scribe_pipeline.errors import Category, ScribeError

MetadataOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME=VALUE", help="What is known of the scans; rules choose the context by it. May be given again."),
]


def read_metadata(said: Sequence[str] | None) -> dict[str, str]:
    """Return the fields that were said. Raises ScribeError (invalid_argument) for what is none, or one that is said twice."""
    fields: dict[str, str] = {}
    for text in said or ():
        name, separator, value = text.partition("=")
        if not name or not separator:
            raise ScribeError(Category.INVALID_ARGUMENT, f"--metadata {text} is not of the form NAME=VALUE")
        if name in fields:
            raise ScribeError(Category.INVALID_ARGUMENT, f"--metadata {name} is said twice: a field has one value")
        fields[name] = value
    return fields
