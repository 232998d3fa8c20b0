"""What happened, for those outside: events with their deliveries, the operators' audit, wake-ups. Sending comes after."""

from scribe_pipeline.events.audit import Operator, record_audit
from scribe_pipeline.events.outbox import EventType, record_event
from scribe_pipeline.events.wakeups import Channel, Listener, wake

__all__ = ["Channel", "EventType", "Listener", "Operator", "record_audit", "record_event", "wake"]
