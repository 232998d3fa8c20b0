"""Processing contexts: which engines read a page and how, and which context is whose item's.

A job never looks here again: it carries a frozen snapshot.
"""

from scribe_pipeline.contexts.editing import add_rule, create_context, edit_context, remove_rule
from scribe_pipeline.contexts.listing import ContextListing, all_contexts, list_contexts, load_context
from scribe_pipeline.contexts.resolution import Resolution, find_context, refresh_context, resolve_context
from scribe_pipeline.contexts.rules import Condition, Metadata, Rule, check_metadata, list_rules
from scribe_pipeline.contexts.snapshots import MAX_PUSH_SECONDS, ContextSnapshot
from scribe_pipeline.contexts.totals import ContextTotals, context_totals

__all__ = [
    "MAX_PUSH_SECONDS",
    "Condition",
    "ContextListing",
    "ContextSnapshot",
    "ContextTotals",
    "Metadata",
    "Resolution",
    "Rule",
    "add_rule",
    "all_contexts",
    "check_metadata",
    "context_totals",
    "create_context",
    "edit_context",
    "find_context",
    "list_contexts",
    "list_rules",
    "load_context",
    "refresh_context",
    "remove_rule",
    "resolve_context",
]
