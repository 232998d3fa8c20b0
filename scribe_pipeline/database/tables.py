"""The tables as SQLAlchemy Core sees them: names and types for writing statements.

Constraints, defaults, indexes and triggers belong to the migrations alone; a test compares the columns of both.
All tables stand in this one file, however long: whoever looks for a column looks here.
"""

from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    FetchedValue,
    Float,
    Integer,
    MetaData,
    Numeric,
    Table,
    Text,
    Uuid,
    column,
    table,
)
from sqlalchemy.dialects.postgresql import JSONB, TIMESTAMP, TSVECTOR

metadata = MetaData()


def _uuid(name: str, *, null: bool = False, key: bool = False) -> Column[object]:
    return Column(name, Uuid, nullable=null and not key, primary_key=key)


def _text(name: str, *, null: bool = False, key: bool = False) -> Column[str]:
    return Column(name, Text, nullable=null and not key, primary_key=key)


def _integer(name: str, *, null: bool = False, key: bool = False) -> Column[int]:
    return Column(name, Integer, nullable=null and not key, primary_key=key, autoincrement=False)


def _time(name: str, *, null: bool = False) -> Column[object]:
    return Column(name, TIMESTAMP(timezone=True), nullable=null)


def _computed_time(name: str) -> Column[Any]:
    """A column that the database computes: nobody writes it."""
    return Column(name, TIMESTAMP(timezone=True), FetchedValue(), nullable=True)


def _lease(due: str = "retry_after", *, always: bool = False) -> tuple[Column[Any], ...]:
    """What a claimable row carries; `leases` in this package says what may be done to it."""
    return (
        _time(due, null=not always),
        _text("lease_owner", null=True),
        _text("lease_token", null=True),
        _time("lease_until", null=True),
        _integer("attempt_count"),
        _integer("max_attempts"),
    )


def _outcome() -> tuple[Column[Any], ...]:
    """What became of a row that has ended, and the state of its notice; the room `outcomes` alone writes these."""
    return (
        _text("outcome_class", null=True),
        Column("outcome_facts", JSONB(none_as_null=True)),
        _time("outcome_recorded_at", null=True),
        _time("failure_notified_at", null=True),
    )


workspaces = Table("workspaces", metadata, _uuid("id", key=True), _text("name"), _time("created_at"))

contexts = Table(
    "contexts",
    metadata,
    _uuid("id", key=True),
    _uuid("workspace_id", null=True),
    _text("name"),
    _text("description"),
    Column("is_default", Boolean, nullable=False),
    _text("segmentation_model"),
    _text("transcription_provider"),
    _text("transcription_model"),
    Column("temperature", Float),
    _text("system_prompt", null=True),
    _integer("segment_cap"),
    _integer("line_concurrency"),
    Column("line_timeout_s", Float, nullable=False),
    _time("created_at"),
    _time("updated_at"),
)

context_selection_rules = Table(
    "context_selection_rules",
    metadata,
    _uuid("id", key=True),
    _uuid("workspace_id"),
    _uuid("context_id"),
    _integer("priority"),
    Column("conditions", JSONB, nullable=False),
    _time("created_at"),
)

items = Table(
    "items",
    metadata,
    _uuid("id", key=True),
    _uuid("workspace_id"),
    _text("name"),
    _text("source_type"),
    _text("source_url", null=True),
    Column("metadata", JSONB, nullable=False),
    _time("created_at"),
    _time("updated_at"),
)

item_images = Table(
    "item_images",
    metadata,
    _uuid("id", key=True),
    _uuid("workspace_id"),
    _uuid("item_id"),
    _integer("sequence"),
    _integer("frame"),
    _text("label"),
    _text("object_key"),
    _text("sha256"),
    Column("storage_bytes", BigInteger, nullable=False),
    _text("media_type"),
    _integer("width"),
    _integer("height"),
    _text("canvas_uri"),
    _time("created_at"),
)

ingest_batches = Table(
    "ingest_batches",
    metadata,
    _uuid("id", key=True),
    _uuid("workspace_id"),
    _uuid("item_id"),
    _uuid("context_id"),
    _text("context_snapshot"),
    _text("request_hash"),
    _integer("again"),
    _text("status"),
    _integer("dispatch_generation"),
    _time("created_at"),
    _time("updated_at"),
    _time("finished_at", null=True),
)

ingest_batch_files = Table(
    "ingest_batch_files",
    metadata,
    _uuid("batch_id", key=True),
    _integer("sequence", key=True),
    _integer("frame", key=True),
    _uuid("workspace_id"),
    _text("filename"),
    _text("source_uri"),
    Column("size_bytes", BigInteger, nullable=False),
    _text("content_sha256"),
    _text("status"),
    *_lease(),
    _text("object_key", null=True),
    _uuid("item_image_id", null=True),
    _text("error_category", null=True),
    _text("error", null=True),
    _time("created_at"),
    _time("updated_at"),
)

annotation_pages = Table(
    "annotation_pages",
    metadata,
    _uuid("item_image_id", key=True),
    _uuid("workspace_id"),
    _text("page_id"),
    _text("canvas_uri"),
    _text("payload"),
    _integer("revision"),
    _text("updated_by"),
    _time("created_at"),
    _time("updated_at"),
)

annotation_page_revisions = Table(
    "annotation_page_revisions",
    metadata,
    _uuid("item_image_id", key=True),
    _integer("revision", key=True),
    _uuid("workspace_id"),
    _text("payload"),
    _text("author_kind"),
    _text("author"),
    _uuid("job_id", null=True),
    _time("created_at"),
)

annotations = Table(
    "annotations",
    metadata,
    _uuid("item_image_id", key=True),
    _text("annotation_id", key=True),
    _uuid("workspace_id"),
    _text("granularity"),
    _integer("position"),
    _text("text"),
    Column("search", TSVECTOR, nullable=False),
)

transcription_jobs = Table(
    "transcription_jobs",
    metadata,
    _uuid("id", key=True),
    _uuid("workspace_id"),
    _uuid("item_image_id"),
    _uuid("batch_id", null=True),
    _uuid("supersedes", null=True),
    _uuid("context_id"),
    _text("context_snapshot"),
    _integer("input_revision"),
    _text("status"),
    _computed_time("due_at"),
    _integer("total_segments"),
    _integer("completed_segments"),
    _integer("failed_segments"),
    *_lease(),
    _integer("result_revision", null=True),
    Column("preflight", JSONB(none_as_null=True)),
    Column("passed", Boolean),
    Column("failures", JSONB, nullable=False),
    _text("error", null=True),
    _text("error_category", null=True),
    _time("created_at"),
    _time("updated_at"),
    _time("finished_at", null=True),
    *_outcome(),
)

transcription_job_attempts = Table(
    "transcription_job_attempts",
    metadata,
    _uuid("job_id", key=True),
    _integer("attempt_number", key=True),
    _uuid("workspace_id"),
    _text("context_snapshot"),
    _integer("input_revision"),
    _text("lease_owner"),
    _text("lease_token"),
    _text("outcome"),
    _text("error_category", null=True),
    _integer("result_revision", null=True),
    _time("started_at"),
    _time("finished_at", null=True),
)

ocr_runs = Table(
    "ocr_runs",
    metadata,
    _uuid("id", key=True),
    _uuid("workspace_id"),
    _uuid("item_image_id"),
    _uuid("job_id", null=True),
    _uuid("context_id"),
    _text("provider"),
    _text("model"),
    _text("original_text"),
    _integer("canonical_revision", null=True),
    _integer("levenshtein_distance", null=True),
    _time("created_at"),
)

current_ocr_runs = Table(
    "current_ocr_runs",
    metadata,
    _uuid("item_image_id", key=True),
    _uuid("workspace_id"),
    _uuid("ocr_run_id"),
    _time("updated_at"),
)

event_outbox = Table(
    "event_outbox",
    metadata,
    _uuid("id", key=True),
    _text("event_type"),
    _uuid("workspace_id"),
    _uuid("item_image_id", null=True),
    _uuid("job_id", null=True),
    _text("subject"),
    _text("body"),
    _time("created_at"),
)

webhook_subscriptions = Table(
    "webhook_subscriptions",
    metadata,
    _uuid("id", key=True),
    _uuid("workspace_id"),
    _text("target_url"),
    _text("signing_secret"),
    _time("created_at"),
)

webhook_deliveries = Table(
    "webhook_deliveries",
    metadata,
    _uuid("id", key=True),
    _uuid("workspace_id"),
    _uuid("event_id"),
    _uuid("subscription_id"),
    _text("status"),
    *_lease("next_attempt_at", always=True),
    _text("last_error", null=True),
    _time("created_at"),
    _time("updated_at"),
)

storage_quota_usage = Table(
    "storage_quota_usage",
    metadata,
    _text("scope", key=True),
    Column("limit_bytes", BigInteger, nullable=False),
    Column("used_bytes", BigInteger, nullable=False),
    Column("reserved_bytes", BigInteger, nullable=False),
    _time("updated_at"),
)

storage_reservations = Table(
    "storage_reservations",
    metadata,
    _uuid("id", key=True),
    _uuid("workspace_id"),
    _uuid("batch_id"),
    _integer("sequence"),
    Column("reserved_bytes", BigInteger, nullable=False),
    _text("resource_key", null=True),
    _time("expires_at"),
    _time("created_at"),
)

resource_cleanup_outbox = Table(
    "resource_cleanup_outbox",
    metadata,
    _uuid("id", key=True),
    _uuid("workspace_id"),
    _text("kind"),
    _text("resource_key"),
    Column("storage_bytes", BigInteger, nullable=False),
    _time("delete_fenced_at", null=True),
    _text("status"),
    *_lease("next_attempt_at", always=True),
    _text("last_error", null=True),
    _time("created_at"),
    _time("updated_at"),
)

operator_audit = Table(
    "operator_audit",
    metadata,
    _uuid("id", key=True),
    _text("actor"),
    _text("action"),
    _text("subject"),
    _text("reason"),
    _time("created_at"),
)

page_exports = Table(
    "page_exports",
    metadata,
    _uuid("item_image_id", key=True),
    _integer("revision", key=True),
    _text("format", key=True),
    _uuid("workspace_id"),
    _text("object_key"),
    _text("sha256"),
    Column("size_bytes", BigInteger, nullable=False),
    _time("created_at"),
)

# Written by other services, but for the outcome of a job.
files = Table(
    "files",
    metadata,
    _uuid("id", key=True),
    _uuid("user_id", null=True),
    _text("name", null=True),
    Column("size", BigInteger),
    _text("mime_type", null=True),
    Column("input_audit_score", Numeric),
    _text("input_audit_band", null=True),
    Column("input_audit_already_accessible", Boolean),
    _time("created_at", null=True),
    _time("updated_at", null=True),
)

flyer_tagging_jobs = Table(
    "flyer_tagging_jobs",
    metadata,
    _uuid("id", key=True),
    _uuid("user_id", null=True),
    _uuid("file_id", null=True),
    _text("input_key", null=True),
    _text("status"),
    Column("passed", Boolean),
    Column("failures", JSONB(none_as_null=True)),
    _text("error", null=True),
    Column("preflight", JSONB(none_as_null=True)),
    Column("progress", JSONB(none_as_null=True)),
    _integer("charge_units", null=True),
    _text("lane", null=True),
    Column("rerouted", Boolean),
    Column("force", Boolean),
    Column("flatten", Boolean),
    _text("source", null=True),
    _time("created_at"),
    _time("updated_at"),
    *_outcome(),
)

outcome_activations = Table("outcome_activations", metadata, _text("family", key=True), _time("activated_at"))

# A view, and so none of the metadata's tables: those can be written to.
item_image_stages = table("item_image_stages", column("item_image_id"), column("stage"))

sensor_heartbeats = Table("sensor_heartbeats", metadata, _text("name", key=True), _time("ticked_at"))
