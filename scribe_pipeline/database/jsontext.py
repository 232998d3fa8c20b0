"""JSON as columns hold it: one fixed form, so that what was loaded and not touched is dumped with the same bytes.

The database takes JSON that Python does not hold: numbers of any length, objects of any depth. Such a row must be readable, too.
"""

import json
import sys
from typing import Any


def dump_json(value: object) -> str:
    """Return `value` as JSON text: keys in their order, no white space, characters as they are.

    Raises ValueError for NaN and infinities, which JSON does not have.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def load_json(value: str | bytes) -> Any:
    """Return what JSON text says; a number too long for an int is a float, and None stands for what is nested too deep.

    Raises ValueError for text that is no JSON.
    """
    try:
        return json.loads(value, parse_int=_whole)
    except RecursionError:
        return None


def _whole(digits: str) -> int | float:
    most = sys.get_int_max_str_digits()
    return float(digits) if 0 < most < len(digits) else int(digits)
