"""The operators' audit: who intervened, in what, and why, written in the transaction of the intervention."""

from dataclasses import dataclass
from datetime import datetime

import uuid_utils.compat as uuid_utils
from sqlalchemy import Connection, insert, select

from scribe_pipeline.database.tables import operator_audit

_MAX_ACTOR = 255


@dataclass(frozen=True)
class Operator:
    """Who intervenes, and the reason that he gives."""

    name: str
    reason: str = ""


@dataclass(frozen=True)
class AuditEntry:
    """An operator's intervention, as it was written down."""

    actor: str
    action: str
    reason: str
    created_at: datetime


def record_audit(connection: Connection, operator: Operator, action: str, subject: str) -> None:
    """Add a row that says what `operator` did: `action` in a word or two, `subject` by kind and id."""
    connection.execute(
        insert(operator_audit).values(
            id=uuid_utils.uuid7(),
            actor=operator.name[:_MAX_ACTOR],
            action=action,
            subject=subject,
            reason=operator.reason,
        )
    )


def read_audit(connection: Connection, *subjects: str) -> tuple[AuditEntry, ...]:
    """Return what was done to these subjects, oldest first."""
    columns = [operator_audit.c[name] for name in AuditEntry.__dataclass_fields__]
    rows = connection.execute(
        select(*columns).where(operator_audit.c.subject.in_(subjects)).order_by(operator_audit.c.created_at, operator_audit.c.id)
    )
    return tuple(AuditEntry(*row) for row in rows)
