"""JSON as text columns hold it: one fixed form, so that what was loaded and not touched is dumped with the same bytes."""

import json


def dump_json(value: object) -> str:
    """Return `value` as JSON text: keys in their order, no white space, characters as they are.

    Raises ValueError for NaN and infinities, which JSON does not have.
    """
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
