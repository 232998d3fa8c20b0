"""Whether rows agree with one another, and with what is in the store. It reads and tells; nothing is repaired here."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from importlib import resources
from itertools import islice
from uuid import UUID

from sqlalchemy import Column, Connection, Engine, exists, select, text

from scribe_pipeline.database import in_transaction
from scribe_pipeline.database.tables import item_images, page_exports
from scribe_pipeline.storage.blobs import BlobStore
from scribe_pipeline.storage.cleanup import owned_objects

images, exports = item_images, page_exports

MOST_A_CHECK = 1000
_AT_ONCE = 10_000

_UNOWNED = "an object that nothing refers to"
_OTHER_SIZE = "an object of another size than its row says"
_NO_SCAN = "an image whose object is not there"
_NO_EXPORT = "an export whose object is not there"


@dataclass(frozen=True)
class Finding:
    """Something that should not be: what, where (an id or an object's key), and what else is known of it."""

    check: str
    subject: str
    detail: str


# By check, so that no more is kept of each than anybody reads.
_Findings = defaultdict[str, list[Finding]]


def audit_storage(engine: Engine, store: BlobStore) -> list[Finding]:
    """Return what is wrong, the first 1,000 findings of each check; nothing that is merely under way is among them.

    Raises ScribeError (unavailable) if the database or the store does not answer.
    """
    # one snapshot, so that what others commit meanwhile is seen by all the queries or by none
    found = in_transaction(engine.execution_options(isolation_level="REPEATABLE READ"), _wrong_rows)
    # the store comes first: an object has its row before its first byte, and keeps it until it is gone
    listed = _compare_objects(engine, store, found)
    _find_missing(engine, store, listed, found)
    return [finding for of_check in found.values() for finding in of_check]


def audit_queries() -> dict[str, str]:
    """Return the queries of `audit.sql` by their names; each returns the rows that should not be there."""
    return named_queries(resources.files(__package__).joinpath("audit.sql").read_text("utf-8"))


def named_queries(script: str) -> dict[str, str]:
    """Return the queries of a script in which a comment before each gives its name."""
    parts = [part.strip() for part in script.split(";") if part.strip()]
    return {part.splitlines()[0].removeprefix("-- "): part for part in parts}


def _wrong_rows(connection: Connection) -> _Findings:
    found: _Findings = defaultdict(list)
    for name, query in audit_queries().items():
        check = name.partition(" ")[2]  # its number is of no use to an operator
        rows = connection.execute(text(f"SELECT * FROM ({query}) AS finding LIMIT {MOST_A_CHECK}"))
        columns = list(rows.keys())[1:]
        for subject, *values in rows:
            detail = ", ".join(f"{column} {value}" for column, value in zip(columns, values, strict=True))
            found[check].append(Finding(check, str(subject), detail))
    return found


def _compare_objects(engine: Engine, store: BlobStore, found: _Findings) -> set[int]:
    """Look for the owners of all that is in the store; return a digest of each key, as the keys of a million take 200 MB."""
    listed: set[int] = set()
    objects = store.stored()
    while chunk := list(islice(objects, _AT_ONCE)):
        listed.update(hash(entry.key) for entry in chunk)
        sizes = in_transaction(engine, partial(owned_objects, object_keys=[entry.key for entry in chunk]))
        for entry in chunk:
            size = sizes.get(entry.key)
            if entry.key not in sizes:
                # it may have been removed in the meantime, with the row that it had
                if len(found[_UNOWNED]) < MOST_A_CHECK and store.exists(entry.key):
                    found[_UNOWNED].append(Finding(_UNOWNED, entry.key, f"{entry.size:,} bytes"))
            elif size not in (None, entry.size) and len(found[_OTHER_SIZE]) < MOST_A_CHECK:
                found[_OTHER_SIZE].append(Finding(_OTHER_SIZE, entry.key, f"{entry.size:,} bytes instead of {size:,}"))
    return listed


def _find_missing(engine: Engine, store: BlobStore, listed: set[int], found: _Findings) -> None:
    for check, column, key, image_id in _kept(engine):
        # it may have been stored after the store was listed
        if hash(key) in listed or len(found[check]) >= MOST_A_CHECK or store.exists(key):
            continue
        # or its image may have been deleted, and the object with it
        if in_transaction(engine, partial(_is_kept, column=column, key=key)):
            found[check].append(Finding(check, str(image_id), f"object {key}"))


def _kept(engine: Engine) -> Iterator[tuple[str, Column[str], str, UUID]]:
    """Yield what is to be in the store: the check to which it belongs, the column that names it, its key, its image."""
    for check, column, image_id in (
        (_NO_SCAN, images.c.object_key, images.c.id),
        (_NO_EXPORT, exports.c.object_key, exports.c.item_image_id),
    ):
        first = select(column, image_id).order_by(column).limit(_AT_ONCE)
        following = first
        while rows := in_transaction(engine, lambda connection: connection.execute(following).all()):  # noqa: B023 - called at once
            yield from ((check, column, *row) for row in rows)
            following = first.where(column > rows[-1][0])


def _is_kept(connection: Connection, column: Column[str], key: str) -> bool:
    return bool(connection.scalar(select(exists().where(column == key))))
