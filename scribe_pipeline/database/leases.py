"""What it means to hold a claimable row: owner, opaque token, deadline on the database's clock.

The tables that carry these columns say themselves which status waits and which is held.
"""

import os
import secrets
import socket
from dataclasses import dataclass

from pydantic import SecretStr
from sqlalchemy import ColumnElement, Connection, Table, and_, func, or_, update

# The values of a row that nobody holds.
RELEASED: dict[str, object] = {"lease_owner": None, "lease_token": None, "lease_until": None}


@dataclass(frozen=True)
class Lease:
    """Who holds a row, for how many seconds, and by which token. The token prints as asterisks."""

    owner: str
    token: SecretStr
    seconds: float


def new_lease(seconds: float) -> Lease:
    """Return a lease for this process with a token that nobody has seen."""
    return Lease(f"{socket.gethostname()}:{os.getpid()}", SecretStr(secrets.token_urlsafe(32)), seconds)


def after(seconds: float) -> ColumnElement[object]:
    """The time so many seconds from now, on the database's clock."""
    return func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def due(table: Table, waiting: str, held: str) -> ColumnElement[bool]:
    """Rows that may be claimed now: waiting and not deferred, or held by somebody whose lease has run out."""
    now = func.clock_timestamp()
    return or_(
        and_(table.c.status == waiting, or_(table.c.retry_after.is_(None), table.c.retry_after <= now)),
        and_(table.c.status == held, table.c.lease_until < now),
    )


def taken_by(lease: Lease) -> dict[str, object]:
    """The values that a claim writes."""
    return {
        "lease_owner": lease.owner,
        "lease_token": lease.token.get_secret_value(),
        "lease_until": after(lease.seconds),
    }


def held_by(table: Table, lease: Lease, held: str) -> ColumnElement[bool]:
    """The fence's part that all claimable tables share: still held, by this very token."""
    return and_(table.c.status == held, table.c.lease_token == lease.token.get_secret_value())


def renew(connection: Connection, table: Table, lease: Lease, fence: ColumnElement[bool]) -> bool:
    """Move the deadline. False if the row is no longer held by this lease, or the lease has run out."""
    statement = update(table).where(fence, table.c.lease_until >= func.clock_timestamp()).values(lease_until=after(lease.seconds))
    return connection.execute(statement).rowcount == 1
