"""The application database: its server, its tables, transactions, locks and leases.

It knows rows, not what they mean: which rows may change when belongs to the rooms that own them.
"""

from scribe_pipeline.database.application import current_database, database_url, migrated_database
from scribe_pipeline.database.engine import (
    PATIENCE,
    DatabaseError,
    connect,
    in_transaction,
    is_current,
    one_of,
    sibling_url,
    sqlalchemy_url,
    translated,
    upgrade,
)
from scribe_pipeline.database.jsontext import dump_json, load_json
from scribe_pipeline.database.leases import RELEASED, Lease, after, due, held_by, new_lease, renew, taken_by
from scribe_pipeline.database.locks import lock
from scribe_pipeline.database.server import EmbeddedServer, binary

__all__ = [
    "PATIENCE",
    "RELEASED",
    "DatabaseError",
    "EmbeddedServer",
    "Lease",
    "after",
    "binary",
    "connect",
    "current_database",
    "database_url",
    "due",
    "dump_json",
    "held_by",
    "in_transaction",
    "is_current",
    "load_json",
    "lock",
    "migrated_database",
    "new_lease",
    "one_of",
    "renew",
    "sibling_url",
    "sqlalchemy_url",
    "taken_by",
    "translated",
    "upgrade",
]
