"""Workspaces: who owns what, and how much. Members and keys belong here too."""

from scribe_pipeline.workspaces.names import workspace_id
from scribe_pipeline.workspaces.quota import (
    Usage,
    bind,
    charge,
    guards,
    in_words,
    read_usage,
    release,
    require_room,
    reserve,
    set_limit,
    sweep_reservations,
)

__all__ = [
    "Usage",
    "bind",
    "charge",
    "guards",
    "in_words",
    "read_usage",
    "release",
    "require_room",
    "reserve",
    "set_limit",
    "sweep_reservations",
    "workspace_id",
]
