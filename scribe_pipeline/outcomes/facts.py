"""What may stand in a job's facts: values of the kind that the summary queries cast them to, and nothing that tells of a person.

Other services write what is read here, so any value may be of any kind; what is not of the kind expected counts as unknown.

What is promised of texts: whatever the rows themselves know (ids, keys, names of files and items, from four characters on, unless
they are everyday words) and whatever shows by its form what it is (addresses, URLs, UUIDs, keys, paths, names of document files)
does not stay, wherever it was written. A person's name that the rows do not know looks like any other words: it stays in an error
or where a program tells its own name. Where one term is expected, nothing stays that has a space, a capital letter, a full stop, or
digits but for two at the end of a word; so neither there nor where a version is expected does the address of a host.
"""

import json
import re
import sys
from collections.abc import Collection, Sequence
from typing import Any

from scribe_pipeline.outcomes.redaction import SHORTEST_KNOWN, redact, truncate

_MAX_FAILURES, _MAX_FAILURE, _MAX_ERROR, _MAX_LABEL = 20, 300, 500, 120
# The largest integer and bigint of the database.
MAX_COUNT, MAX_BYTES = 2**31 - 1, 2**63 - 1
# A term in small letters, or a grade.
_WORD = re.compile(r"(?!.{65})[a-z]+[0-9]{0,2}(?:[_+-][a-z]+[0-9]{0,2})*|[A-Z][+-]?")
_SLUG = re.compile(r"[a-z0-9][a-z0-9_.:+-]{0,63}(?:/[a-z0-9][a-z0-9_.:+-]{0,63})?")
_MEDIA_TYPE = re.compile(r"(?:application|audio|font|image|message|model|multipart|text|video)/(?=[0-9]*[a-z])[a-z0-9.+-]{1,80}")
_VERSION = re.compile(r"[0-9]{1,2}(?:\.[0-9]{1,2}){0,2}")


def count(value: object, most: int = MAX_COUNT) -> int | None:
    """A whole number that is not negative, or the length of a list; else None."""
    if isinstance(value, list):
        return len(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most else None


def number(value: object) -> float | int | None:
    """A number that a double holds, else None: JSON knows no infinity, but numbers that Python takes for one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if abs(value) <= sys.float_info.max else None


def flag(value: object) -> bool | None:
    """True or false, else None."""
    return value if isinstance(value, bool) else None


def word(value: object, known: Collection[str] = ()) -> str | None:
    """A term such as `ocr`, `pdf_ua1` or `present-and-usable`, or a grade such as `B+`; else None, as it may tell of a person."""
    return _of_form(_WORD, value, known)


def slug(value: object, known: Collection[str] = ()) -> str | None:
    """A name that the house itself gives to a model, a context or a provider, such as `kraken-blla` or `qwen2.5`; else None."""
    return _of_form(_SLUG, value, known)


def media_type(value: object, known: Collection[str] = ()) -> str | None:
    """A media type such as `image/tiff`, of a registered top-level type and without parameters; else None."""
    # what it may be made of, as in `image/vnd.djvu`, only looks like the name of a file
    if not isinstance(value, str) or not _MEDIA_TYPE.fullmatch(value):
        return None
    names = (_joined(name) for name in known)
    return None if any(len(name) >= SHORTEST_KNOWN and name in _joined(value) for name in names) else value


def version(value: object) -> str | None:
    """A version such as `1.7`, never an address of a host, be it given as text or as a number; else None."""
    text = str(number(value)) if number(value) is not None else value
    return text if isinstance(text, str) and _VERSION.fullmatch(text) else None


def label(value: object, known: Collection[str] = ()) -> str | None:
    """Words that a program calls itself by, redacted; None if there are none."""
    return truncate(redact(value, known), _MAX_LABEL) or None if isinstance(value, str) else None


def error_text(error: str | None, known: Collection[str] = ()) -> str | None:
    """An error, redacted and cut to 500 code points."""
    return None if error is None else truncate(redact(error, known), _MAX_ERROR)


def failure_texts(failures: Sequence[str], known: Collection[str] = ()) -> list[str]:
    """The first 20 failures, each redacted and cut to 300 code points."""
    return [truncate(redact(failure, known), _MAX_FAILURE) for failure in failures[:_MAX_FAILURES]]


def strings(value: object) -> tuple[str, ...]:
    """The failures of a row as strings, whatever its column holds."""
    entries = value if isinstance(value, list) else [] if value is None else [value]
    return tuple(entry if isinstance(entry, str) else json.dumps(entry, ensure_ascii=False) for entry in entries)


def mapping(value: object) -> dict[str, Any]:
    """An object of a row, or an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def _joined(text: str) -> str:
    return re.sub(r"[\W_]+", "", text).lower()


def _of_form(form: re.Pattern[str], value: object, known: Collection[str]) -> str | None:
    return value if isinstance(value, str) and form.fullmatch(value) and redact(value, known) == value else None
