"""What happened, for those outside: events with their deliveries, the operators' audit, wake-ups. Sending comes after."""

from scribe_pipeline.events.audit import AuditEntry, Operator, read_audit, record_audit
from scribe_pipeline.events.outbox import Event, EventType, record_events
from scribe_pipeline.events.outboxes import OUTBOX_KINDS, OUTBOX_STATUSES, OutboxEntry, list_outboxes, load_outbox_entry
from scribe_pipeline.events.wakeups import Channel, Listener, wake

__all__ = [
    "OUTBOX_KINDS",
    "OUTBOX_STATUSES",
    "AuditEntry",
    "Channel",
    "Event",
    "EventType",
    "Listener",
    "Operator",
    "OutboxEntry",
    "list_outboxes",
    "load_outbox_entry",
    "read_audit",
    "record_audit",
    "record_events",
    "wake",
]
