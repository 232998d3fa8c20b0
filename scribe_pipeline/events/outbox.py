"""The outbox: an event and a delivery for each webhook are written in the transaction that made the event true."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from uuid import UUID

import uuid_utils.compat as uuid_utils
from sqlalchemy import Connection, insert, select

from scribe_pipeline.database import dump_json
from scribe_pipeline.database.tables import event_outbox, webhook_deliveries, webhook_subscriptions


class EventType(StrEnum):
    """The CloudEvents types that are stored."""

    TRANSCRIPTION_COMPLETED = "dev.scribe.transcription.completed"
    TRANSCRIPTION_FAILED = "dev.scribe.transcription.failed"
    TRANSCRIPTION_CANCELED = "dev.scribe.transcription.canceled"
    ANNOTATIONS_CREATED = "dev.scribe.annotations.created"
    ANNOTATIONS_SAVED = "dev.scribe.annotations.saved"


@dataclass(frozen=True)
class Event:
    """Something that became true of an image at the database's time `at`; `job_id` names the job that it is about, if it is."""

    type: EventType
    workspace_id: UUID
    item_image_id: UUID
    at: datetime
    data: Mapping[str, object]
    job_id: UUID | None = None


def record_events(connection: Connection, events: Sequence[Event]) -> None:
    """Put a CloudEvents 1.0 JSON document for each into the outbox, with a delivery for each webhook of their one workspace."""
    if not events:
        return
    # a subscription that is being removed waits until its deliveries are there to be removed too
    subscriptions = connection.scalars(
        select(webhook_subscriptions.c.id)
        .where(webhook_subscriptions.c.workspace_id == events[0].workspace_id)
        .order_by(webhook_subscriptions.c.id)
        .with_for_update(read=True, key_share=True)
    ).all()
    rows = [_row(event) for event in events]
    connection.execute(insert(event_outbox), rows)
    deliveries = [
        {
            "id": uuid_utils.uuid7(),
            "workspace_id": row["workspace_id"],
            "event_id": row["id"],
            "subscription_id": subscription,
        }
        for row in rows
        for subscription in subscriptions
    ]
    if deliveries:
        connection.execute(insert(webhook_deliveries), deliveries)


def _row(event: Event) -> dict[str, object]:
    event_id = uuid_utils.uuid7()
    subject = f"item-images/{event.item_image_id}"
    body = {
        "specversion": "1.0",
        "id": str(event_id),
        "source": "/scribe",
        "type": event.type.value,
        "subject": subject,
        "time": event.at.astimezone(UTC).isoformat(),
        "datacontenttype": "application/json",
        "data": {"workspaceId": str(event.workspace_id), "itemImageId": str(event.item_image_id)} | dict(event.data),
    }
    return {
        "id": event_id,
        "event_type": event.type.value,
        "workspace_id": event.workspace_id,
        "item_image_id": event.item_image_id,
        "job_id": event.job_id,
        "subject": subject,
        "body": dump_json(body),
    }
