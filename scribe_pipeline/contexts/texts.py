"""Which texts the database takes: not every one that Python does."""

import re
from typing import Annotated

from pydantic import AfterValidator

_NEVER_STORED = re.compile("[\0\ud800-\udfff]")


def is_storable(text: str) -> bool:
    """Whether a text has neither NUL nor a lone surrogate."""
    return _NEVER_STORED.search(text) is None


def _storable(text: str) -> str:
    if not is_storable(text):
        raise ValueError("it has characters that cannot be stored")
    return text


StorableText = Annotated[str, AfterValidator(_storable)]
