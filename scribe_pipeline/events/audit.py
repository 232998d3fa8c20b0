"""The operators' audit: who intervened, in what, and why, written in the transaction of the intervention."""

from dataclasses import dataclass

import uuid_utils.compat as uuid_utils
from sqlalchemy import Connection, insert

from scribe_pipeline.database.tables import operator_audit

_MAX_ACTOR = 255


@dataclass(frozen=True)
class Operator:
    """Who intervenes, and the reason that he gives."""

    name: str
    reason: str = ""


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
