"""The outbox: an event and a delivery for each webhook are written in the transaction that made the event true."""

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


def record_event(
    connection: Connection,
    event_type: EventType,
    *,
    workspace_id: UUID,
    item_image_id: UUID,
    at: datetime,
    data: dict[str, object],
    job_id: UUID | None = None,
) -> None:
    """Put one CloudEvents 1.0 JSON document into the outbox, and a delivery of it for each of the workspace's webhooks.

    `at` is the database's time of the change.
    """
    event_id = uuid_utils.uuid7()
    subject = f"item-images/{item_image_id}"
    body = {
        "specversion": "1.0",
        "id": str(event_id),
        "source": "/scribe",
        "type": event_type.value,
        "subject": subject,
        "time": at.astimezone(UTC).isoformat(),
        "datacontenttype": "application/json",
        "data": {"workspaceId": str(workspace_id), "itemImageId": str(item_image_id)} | data,
    }
    connection.execute(
        insert(event_outbox).values(
            id=event_id,
            event_type=event_type.value,
            workspace_id=workspace_id,
            item_image_id=item_image_id,
            job_id=job_id,
            subject=subject,
            body=dump_json(body),
        )
    )
    # a subscription that is being removed waits until its deliveries are there to be removed too
    subscriptions = connection.scalars(
        select(webhook_subscriptions.c.id)
        .where(webhook_subscriptions.c.workspace_id == workspace_id)
        .order_by(webhook_subscriptions.c.id)
        .with_for_update(read=True, key_share=True)
    ).all()
    if subscriptions:
        connection.execute(
            insert(webhook_deliveries),
            [
                {"id": uuid_utils.uuid7(), "workspace_id": workspace_id, "event_id": event_id, "subscription_id": subscription}
                for subscription in subscriptions
            ],
        )
