"""What the schema refuses, by the name of who refuses it: for each constraint and trigger the changes that break just that one.

A change is what follows `UPDATE <its table> SET`. It meets the rows that `test_checks.furnish` makes.
"""

import json
from typing import Any

LEASE = "lease_owner = 'someone', lease_token = gen_random_uuid()::text, lease_until = clock_timestamp()"
SAME_LEASE = "lease_owner = 'someone', lease_token = 'same', lease_until = clock_timestamp()"
# One value for all rows, which no row has yet.
SAME_ID = "'01900000-0000-7000-8000-0000000000ff'"
NOW = "finished_at = clock_timestamp()"
# One removal of an upload that waits.
WAITING = "WHERE id = (SELECT id FROM resource_cleanup_outbox WHERE status = 'pending' AND kind = 'upload_blob' LIMIT 1)"
FENCED = "FROM resource_cleanup_outbox WHERE delete_fenced_at IS NOT NULL"
PENDING, RUNNING, COMPLETED = (f"WHERE status = '{status}'" for status in ("pending", "running", "completed"))
OPEN = "WHERE outcome = 'running'"
CLOSED = "WHERE outcome = 'completed'"
RECORDED, UNRECORDED = "WHERE outcome_recorded_at IS NOT NULL", "WHERE outcome_recorded_at IS NULL"


def outcome(notice: str, attempts: int, outcome_class: str = "pipeline_error", *, told: bool = False) -> str:
    """What sets the columns of an outcome whose notice is in this state after so many attempts; `told` in a digest."""
    claimed_at = "2026-01-01T00:00:00.000000Z" if attempts else None
    written = {"failures": [], "notice": notice, "notice_attempts": attempts, "notice_claimed_at": claimed_at}
    return f"""outcome_class = '{outcome_class}', outcome_facts = '{json.dumps(written)}',
               outcome_recorded_at = updated_at + interval '3 minutes',
               failure_notified_at = {"clock_timestamp()" if told or notice == "sent" else "NULL"}"""


def noticed(*notices: str) -> str:
    """The recorded rows whose notice is in one of these states."""
    return f"WHERE outcome_facts ->> 'notice' IN ({', '.join(map(repr, notices))})"


def with_facts(**facts: Any) -> str:
    """Other facts beside those that are there."""
    return f"outcome_facts = outcome_facts || '{json.dumps(facts)}'"


# R196: an outcome is there wholly or not at all, and its notice is in one of eight states, each with what belongs to it.
BROKEN_OUTCOMES = (
    f"outcome_class = NULL {RECORDED}",
    f"outcome_facts = NULL {RECORDED}",
    f"outcome_recorded_at = NULL {RECORDED}",
    f"outcome_class = 'success' {UNRECORDED}",
    f"failure_notified_at = clock_timestamp() {UNRECORDED}",
    f"outcome_class = 'odd' {RECORDED}",
    f"outcome_facts = '[]' {RECORDED}",
    f"outcome_facts = outcome_facts - 'failures' {RECORDED}",
    f"{with_facts(failures={})} {RECORDED}",
    f"outcome_facts = outcome_facts - 'notice' {RECORDED}",
    f"{with_facts(notice='lost')} {noticed('failed')}",
    f"outcome_class = 'success' {noticed('failed')}",
    f"outcome_class = 'cancelled' {noticed('failed')}",
    f"outcome_facts = outcome_facts - 'notice_attempts' {noticed('failed')}",
    f"{with_facts(notice_attempts='3')} {noticed('failed')}",
    # R184: a notice is not sent more than three times
    f"{with_facts(notice_attempts=4)} {noticed('failed')}",
    f"{with_facts(notice_attempts=-1)} {noticed('failed')}",
    f"{with_facts(notice_attempts=0)} {noticed('failed')}",
    f"{with_facts(notice_claimed_at=None)} {noticed('failed')}",
    *(f"{outcome(notice, 0)} {noticed('failed')}" for notice in ("sending", "pending", "sent")),
    f"{with_facts(notice='sent')} {noticed('failed')}",
    f"failure_notified_at = clock_timestamp() {noticed('failed')}",
)
# I14: an outcome is recorded once, and its notice goes on from state to state as `test_outcome_trigger` tells.
BROKEN_STEPS = (
    f"outcome_class = 'fidelity' {noticed('failed')}",
    f"outcome_recorded_at = clock_timestamp() {noticed('failed')}",
    f"{with_facts(error='another')} {noticed('failed')}",
    f"outcome_class = NULL, outcome_facts = NULL, outcome_recorded_at = NULL {noticed('failed')}",
    f"{with_facts(notice='digest')} {noticed('failed')}",
    f"{with_facts(notice_claimed_at='2026-01-02T00:00:00.000000Z')} {noticed('failed')}",
    f"{with_facts(notice_attempts=2)} {noticed('failed')}",
)

CHECKS: dict[str, tuple[str, ...]] = {
    "workspaces_name_length": ("name = '' WHERE name = 'other'", "name = repeat('n', 256) WHERE name = 'other'"),
    "contexts_name_length": ("name = '' WHERE name = 'letter'", "name = repeat('n', 256) WHERE name = 'letter'"),
    "contexts_segmentation_model_form": ("segmentation_model = 'Two Words'", "segmentation_model = ''"),
    "contexts_transcription_provider_form": ("transcription_provider = '9'", "transcription_provider = repeat('p', 65)"),
    "contexts_temperature_range": ("temperature = -0.1", "temperature = 2.1"),
    "contexts_system_prompt_length": ("system_prompt = repeat('p', 8193)",),
    "contexts_segment_cap_positive": ("segment_cap = 0",),
    "contexts_line_concurrency_positive": ("line_concurrency = 0",),
    "contexts_line_timeout_positive": ("line_timeout_s = 0",),
    "context_selection_rules_conditions_form": (
        "conditions = '{}'",
        "conditions = '[]'",
        "conditions = '[1]'",
        """conditions = '[{"field": "f", "operator": "eq"}]'""",
        """conditions = '[{"field": "f", "operator": "eq", "value": 1}]'""",
        """conditions = '[{"field": "", "operator": "eq", "value": ""}]'""",
        """conditions = '[{"field": 1, "operator": "eq", "value": ""}]'""",
        """conditions = '[{"field": "f", "operator": "like", "value": ""}]'""",
        """conditions = '[{"field": "f", "operator": "eq", "value": "", "more": 1}]'""",
        "conditions = jsonb_set(conditions, '{0,field}', to_jsonb(repeat('f', 256)))",
        "conditions = jsonb_set(conditions, '{0,value}', to_jsonb(repeat('v', 1025)))",
        "conditions = conditions || '[null]'",
        "conditions = format('[%s%s]', conditions ->> 0, repeat(',' || (conditions ->> 0), 32))::jsonb",
    ),
    "items_name_present": ("name = ''",),
    "items_source_type": ("source_type = 'fax'",),
    "items_metadata_object": ("metadata = '[]'",),
    "item_images_sequence_positive": ("sequence = 0 WHERE sequence = 1",),
    "item_images_frame_positive": ("frame = 0",),
    # R51: the name of an image's object says its SHA-256 and holds a UUID
    "item_images_object_key_form": (
        "object_key = sha256 || '-' || gen_random_uuid()",
        "object_key = sha256 || '-' || gen_random_uuid() || '.a/b'",
        "object_key = sha256 || '-' || replace(gen_random_uuid()::text, '-', '') || '.png'",
    ),
    "item_images_key_names_bytes": ("object_key = repeat('0', 64) || '-' || gen_random_uuid() || '.png'",),
    "item_images_storage_bytes_positive": ("storage_bytes = 0",),
    "item_images_width_positive": ("width = 0",),
    "item_images_height_positive": ("height = 0",),
    "ingest_batches_snapshot_object": ("context_snapshot = '[]'",),
    "ingest_batches_request_hash_form": ("request_hash = left(request_hash, 63)", "request_hash = 'X' || left(request_hash, 63)"),
    "ingest_batches_again_range": ("again = -1",),
    "ingest_batches_status": (f"status = 'over' {RUNNING}",),
    "ingest_batches_dispatch_generation_range": ("dispatch_generation = -1",),
    "ingest_batches_finished": (f"{NOW} {RUNNING}", f"status = 'completed' {RUNNING}", f"status = 'canceled' {RUNNING}"),
    "ingest_batch_files_sequence_positive": ("sequence = 0 WHERE sequence = 1",),
    "ingest_batch_files_frame_positive": ("frame = 0",),
    "ingest_batch_files_size_range": ("size_bytes = -1",),
    "ingest_batch_files_sha256_form": ("content_sha256 = left(content_sha256, 63)",),
    "ingest_batch_files_status": (f"status = 'over' {PENDING}",),
    "ingest_batch_files_error_length": ("error = repeat('e', 1025)",),
    "ingest_batch_files_attempts": ("attempt_count = -1", "attempt_count = max_attempts + 1"),
    "ingest_batch_files_lease": (
        f"status = 'processing' {PENDING}",
        f"{LEASE} {PENDING}",
        f"status = 'processing', lease_owner = 'someone', lease_token = gen_random_uuid()::text {PENDING}",
    ),
    "ingest_batch_files_completed": (f"status = 'completed', item_image_id = NULL {PENDING}",),
    "ingest_batch_files_failed": (f"status = 'failed' {PENDING}", f"error_category = 'empty' {PENDING}"),
    "ingest_batch_files_error_category": (f"status = 'failed', error_category = 'no_text' {PENDING}",),
    "annotation_pages_page_id_length": ("page_id = repeat('p', 480) || item_image_id",),
    "annotation_pages_payload_object": ("payload = '[]'",),
    "annotation_pages_revision_positive": ("revision = 0",),
    "annotation_page_revisions_revision_positive": ("revision = 0 WHERE revision = 1",),
    "annotation_page_revisions_author_kind": ("author_kind = 'ghost'",),
    "annotations_id_length": ("annotation_id = repeat('a', 513) WHERE position = 0",),
    "annotations_granularity": ("granularity = 'sentence'",),
    "annotations_position_range": ("position = -1 WHERE position = 0",),
    "transcription_jobs_snapshot_object": ("context_snapshot = '[]'",),
    # R3: the input revision is greater than zero
    "transcription_jobs_input_revision_positive": (f"input_revision = 0 {PENDING}", f"input_revision = -1 {PENDING}"),
    "transcription_jobs_status": (f"status = 'over', {NOW} {PENDING}",),
    "transcription_jobs_max_attempts_positive": (f"max_attempts = 0 {PENDING}",),
    "transcription_jobs_preflight_object": ("preflight = '[]'",),
    "transcription_jobs_failures_array": ("failures = '{}'",),
    "transcription_jobs_error_length": ("error = repeat('e', 1025)",),
    # R1: a running job has owner, token and deadline; any other has none of them, one that has ended neither
    "transcription_jobs_lease": (
        f"status = 'running', attempt_count = 1 {PENDING}",
        f"{LEASE} {PENDING}",
        f"status = 'running', attempt_count = 1, lease_owner = 'someone', lease_token = gen_random_uuid()::text {PENDING}",
        f"status = 'running', attempt_count = 1, lease_token = gen_random_uuid()::text, lease_until = clock_timestamp() {PENDING}",
        f"status = 'canceled', {NOW} {RUNNING}",
        f"{LEASE} {COMPLETED}",
    ),
    "transcription_jobs_attempts": (f"attempt_count = -1 {PENDING}", "attempt_count = max_attempts + 1"),
    "transcription_jobs_claimed": (
        f"status = 'running', {LEASE} {PENDING}",
        f"status = 'completed', result_revision = input_revision + 1, {NOW} {PENDING}",
    ),
    "transcription_jobs_result": (
        f"result_revision = input_revision + 1 {PENDING}",
        f"result_revision = NULL {COMPLETED}",
        f"result_revision = input_revision {COMPLETED}",
        f"result_revision = input_revision + 2 {COMPLETED}",
    ),
    "transcription_jobs_failed": (f"status = 'failed', {NOW} {PENDING}", f"error_category = 'timeout' {PENDING}"),
    "transcription_jobs_finished": (f"{NOW} {PENDING}", f"finished_at = NULL {COMPLETED}", f"status = 'superseded' {PENDING}"),
    "transcription_jobs_segments": (
        f"completed_segments = -1 {PENDING}", f"failed_segments = -1 {PENDING}", f"total_segments = 2 {COMPLETED}",
    ),
    "transcription_jobs_error_category": (f"status = 'failed', error_category = 'bad luck', {NOW} {PENDING}",),
    "transcription_jobs_supersedes_another": ("supersedes = id",),
    "transcription_job_attempts_number_positive": ("attempt_number = 0 WHERE attempt_number = 1",),
    "transcription_job_attempts_input_revision_positive": ("input_revision = 0",),
    # R11: the outcomes are a closed list
    "transcription_job_attempts_outcome": (f"outcome = 'vanished', {NOW} {OPEN}",),
    "transcription_job_attempts_finished": (f"{NOW} {OPEN}", f"finished_at = NULL {CLOSED}", f"outcome = 'canceled' {OPEN}"),
    "transcription_job_attempts_order": (f"finished_at = started_at - interval '1 second' {CLOSED}",),
    "transcription_job_attempts_result": (f"result_revision = 2 {OPEN}", f"result_revision = NULL {CLOSED}"),
    "transcription_job_attempts_error": (f"error_category = 'timeout' {OPEN}", f"outcome = 'failed', {NOW} {OPEN}"),
    "transcription_job_attempts_error_category": (f"outcome = 'failed', error_category = 'bad luck', {NOW} {OPEN}",),
    "event_outbox_body_object": ("body = '[]'",),
    "webhook_subscriptions_target_url_form": ("target_url = 'ftp://' || id", "target_url = 'https://a b/' || id"),
    "webhook_subscriptions_secret_length": ("signing_secret = repeat('s', 31)", "signing_secret = repeat('s', 1025)"),
    "webhook_deliveries_status": (f"status = 'over' {PENDING}",),
    "webhook_deliveries_last_error_length": ("last_error = repeat('e', 129)",),
    "webhook_deliveries_attempts": ("attempt_count = -1", "attempt_count = max_attempts + 1"),
    "webhook_deliveries_lease": (f"status = 'processing' {PENDING}", f"{LEASE} {PENDING}"),
    "resource_cleanup_outbox_kind": ("kind = 'page'",),
    "resource_cleanup_outbox_key_present": ("resource_key = '' WHERE status = 'failed'",),
    "resource_cleanup_outbox_bytes_range": ("storage_bytes = -1",),
    "resource_cleanup_outbox_status": (f"status = 'done' {PENDING}",),
    "resource_cleanup_outbox_attempts": ("attempt_count = -1",),
    "resource_cleanup_outbox_last_error_length": ("last_error = repeat('e', 129)",),
    "resource_cleanup_outbox_lease": (f"status = 'processing' {PENDING}", f"{LEASE} {PENDING}"),
    # R57: the removal of an upload never becomes terminal
    "resource_cleanup_outbox_upload_goes_on": (f"status = 'failed' {WAITING}",),
    "resource_cleanup_outbox_upload_key_form": (
        f"resource_key = left(resource_key, 101) {WAITING}", f"resource_key = '../' || resource_key {WAITING}",
    ),
    "resource_cleanup_outbox_staged_unfenced": (
        "status = 'staged', lease_owner = NULL, lease_token = NULL, lease_until = NULL WHERE status = 'processing'",
    ),
    "storage_quota_usage_scope_form": ("scope = 'all' WHERE scope = 'global'",),
    "storage_quota_usage_limit_range": ("limit_bytes = -1",),
    "storage_quota_usage_used_range": ("used_bytes = -1",),
    "storage_quota_usage_reserved_range": ("reserved_bytes = -1",),
    "storage_reservations_bytes_positive": ("reserved_bytes = 0",),
    "operator_audit_actor_length": ("actor = ''", "actor = repeat('a', 256)"),
    "operator_audit_action_present": ("action = ''",),
    "operator_audit_subject_present": ("subject = ''",),
    "operator_audit_reason_length": ("reason = repeat('r', 1025)",),
    "page_exports_revision_positive": ("revision = 0",),
    "page_exports_format": ("format = 'docx' WHERE format = 'txt'",),
    "page_exports_object_key_form": (
        "object_key = sha256 || '-' || gen_random_uuid()",
        "object_key = sha256 || '-' || gen_random_uuid() || '.alto.xml'",
    ),
    "page_exports_key_names_bytes": ("object_key = repeat('0', 64) || '-' || gen_random_uuid() || '.xml'",),
    "page_exports_size_range": ("size_bytes = -1",),
    "flyer_tagging_jobs_outcome": BROKEN_OUTCOMES,
    "transcription_jobs_outcome": BROKEN_OUTCOMES,
    # what has not ended has no outcome
    "transcription_jobs_outcome_of_ended": tuple(f"{outcome('none', 0, 'success')} {open_job}" for open_job in (PENDING, RUNNING)),
    "outcome_activations_family": ("family = 'other_jobs' WHERE family = 'flyer_tagging_jobs'",),
}  # fmt: skip

UNIQUE: dict[str, str] = {
    "workspaces_name_unique": "name = 'same'",
    "contexts_name_unique": "name = 'same'",
    "contexts_one_default": "is_default = true",
    "item_images_object_key_unique": f"(sha256, object_key) = (repeat('0', 64), repeat('0', 64) || '-' || {SAME_ID} || '.png')",
    "item_images_canvas_unique": "canvas_uri = 'same'",
    "item_images_place_unique": "sequence = 9",
    "ingest_batches_item_unique": f"item_id = {SAME_ID}",
    "ingest_batches_request_unique": f"request_hash = repeat('a', 64) {RUNNING}",
    "ingest_batch_files_lease_token_unique": f"status = 'processing', {SAME_LEASE} {PENDING}",
    "ingest_batch_files_image_unique": f"item_image_id = {SAME_ID}",
    "annotation_pages_page_id_unique": "page_id = 'same'",
    "annotations_position_unique": "position = 9",
    "transcription_jobs_lease_token_unique": f"status = 'running', attempt_count = 1, {SAME_LEASE} {PENDING}",
    # R94: no image has two active jobs
    "transcription_jobs_one_active": f"item_image_id = {SAME_ID} {PENDING}",
    # R39: no token is given twice
    "transcription_job_attempts_lease_token_unique": "lease_token = 'same'",
    "transcription_job_attempts_one_running": (
        "outcome = 'running', finished_at = NULL, result_revision = NULL, error_category = NULL"
    ),
    "current_ocr_runs_run_unique": f"ocr_run_id = {SAME_ID}",
    "event_outbox_one_completion": f"job_id = {SAME_ID} WHERE event_type LIKE '%completed'",
    "webhook_subscriptions_target_unique": "target_url = 'https://same'",
    "webhook_deliveries_lease_token_unique": f"status = 'processing', {SAME_LEASE} {PENDING}",
    "webhook_deliveries_once": f"event_id = {SAME_ID}",
    "resource_cleanup_outbox_lease_token_unique": f"status = 'processing', {SAME_LEASE} WHERE kind = 'upload_blob'",
    "resource_cleanup_outbox_once": f"resource_key = repeat('0', 64) || '-' || {SAME_ID} || '.png' WHERE kind = 'upload_blob'",
    "storage_reservations_key_unique": "resource_key = 'same'",
    "storage_reservations_one_a_file": "sequence = 9",
    "page_exports_object_key_unique": f"(sha256, object_key) = (repeat('0', 64), repeat('0', 64) || '-' || {SAME_ID} || '.xml')",
}

# The columns that keep the value they were inserted with.
KEPT: dict[str, tuple[str, ...]] = {
    "contexts_keep": ("id", "workspace_id", "created_at"),
    "context_selection_rules_keep": ("id", "workspace_id", "context_id", "priority", "conditions", "created_at"),
    # R51: an image's identity does not change
    "item_images_keep": (
        "id", "workspace_id", "item_id", "frame", "object_key", "sha256", "storage_bytes", "media_type", "width", "height",
        "canvas_uri",
    ),
    "ingest_batches_keep": (
        "id", "workspace_id", "item_id", "context_id", "context_snapshot", "request_hash", "again", "created_at",
    ),
    "ingest_batch_files_keep": ("batch_id", "sequence", "frame", "workspace_id", "filename", "size_bytes", "content_sha256"),
    "annotation_pages_keep": ("item_image_id", "workspace_id", "page_id", "canvas_uri", "created_at"),
    # R2, R95: what a job asks for is frozen when it is made
    "transcription_jobs_keep": (
        "id", "workspace_id", "item_image_id", "batch_id", "context_id", "context_snapshot", "input_revision", "max_attempts",
        "supersedes", "created_at",
    ),
    # R12, R96: nothing of an attempt changes but what its end says
    "transcription_job_attempts_keep": (
        "job_id", "attempt_number", "workspace_id", "context_snapshot", "input_revision", "lease_owner", "lease_token",
        "started_at",
    ),
    # R162: a baseline stays readable as it was; only its two metrics change
    "ocr_runs_keep": (
        "id", "workspace_id", "item_image_id", "job_id", "context_id", "provider", "model", "original_text", "created_at",
    ),
    "webhook_deliveries_keep": ("id", "workspace_id", "event_id", "subscription_id", "max_attempts", "created_at"),
    "resource_cleanup_outbox_keep": ("id", "workspace_id", "kind", "resource_key", "created_at"),
    "storage_quota_usage_keep": ("scope",),
    "storage_reservations_keep": ("id", "workspace_id", "batch_id", "sequence", "reserved_bytes", "created_at"),
    # R92: an export stays that of the revision it was made from
    "page_exports_keep": (
        "item_image_id", "revision", "format", "workspace_id", "object_key", "sha256", "size_bytes", "created_at",
    ),
    # R199: what was history when a family was scanned first stays history
    "outcome_activations_keep": ("family",),
}  # fmt: skip
# What has to be said beside a kept column, so that no other trigger refuses the change first.
BESIDE = {
    "annotation_pages_keep": "revision = revision + 1",
    "transcription_job_attempts_keep": f"outcome = 'canceled', {NOW}",
}

STEPS: dict[str, tuple[str, ...]] = {
    "ingest_batches_step": tuple(f"status = '{to}' WHERE status = 'canceled'" for to in ("pending", "running", "completed")),
    "ingest_batch_files_step": tuple(f"status = '{to}' {COMPLETED}" for to in ("pending", "processing", "failed", "canceled")),
    # R95: a job becomes terminal once and stays so
    "transcription_jobs_step": (
        *(f"status = '{to}' {COMPLETED}" for to in ("pending", "running", "failed", "canceled", "superseded")),
        *(f"status = '{to}' WHERE status = 'canceled'" for to in ("pending", "running", "completed", "failed", "superseded")),
        f"status = 'completed' {PENDING}",
        f"status = 'failed' {PENDING}",
        f"attempt_count = attempt_count - 1 {RUNNING}",
        f"error = 'another' {COMPLETED}",
        f"finished_at = finished_at + interval '1 day' {COMPLETED}",
    ),
    # R12: an attempt is closed once, and for good
    "transcription_job_attempts_step": (
        f"outcome = 'running', finished_at = NULL {CLOSED}",
        f"outcome = 'superseded' {CLOSED}",
        f"error_category = NULL {CLOSED}",
        f"lease_owner = lease_owner {OPEN}",
    ),
    # R162: the chain of a page's revisions has no gaps and never goes back
    "annotation_pages_step": ("revision = revision", "revision = revision + 2", "revision = revision - 1"),
    "webhook_deliveries_step": tuple(f"status = '{to}' WHERE status = 'delivered'" for to in ("pending", "processing", "failed")),
    # R56, R68, R77, R79: attempts, fence and bytes of a removal stay through everything but its confirmation
    "resource_cleanup_outbox_step": (
        f"storage_bytes = storage_bytes - 1 {WAITING}",
        "attempt_count = attempt_count - 1 WHERE status = 'processing'",
        "delete_fenced_at = NULL WHERE status = 'processing'",
        "delete_fenced_at = delete_fenced_at + interval '1 second' WHERE status = 'processing'",
        f"delete_fenced_at = clock_timestamp() {WAITING}",
    ),
    "flyer_tagging_jobs_recorded": BROKEN_STEPS,
    "transcription_jobs_recorded": BROKEN_STEPS,
}

# Rows that are evidence: the columns that may be changed nevertheless are refused by the triggers above, if at all.
EVIDENCE: dict[str, str] = {
    "annotation_page_revisions_evidence": "UPDATE OR DELETE",  # R162
    "transcription_jobs_evidence": "DELETE",  # R32
    "transcription_job_attempts_evidence": "DELETE",  # R12, R96
    "ocr_runs_evidence": "DELETE",  # R162
    "operator_audit_evidence": "UPDATE OR DELETE",  # R34
}

# Tables that cannot be emptied at a stroke either.
STAYING = (*(name.replace("_evidence", "_stay") for name in EVIDENCE), "resource_cleanup_outbox_stay")

# What cannot be done at all, as whole statements.
STATEMENTS: dict[str, tuple[str, ...]] = {
    # R50, R72, R79: no removal is forgotten that is neither confirmed nor pointless, nor one that has failed
    "resource_cleanup_outbox_confirmed": (
        f"DELETE FROM resource_cleanup_outbox {WAITING}",
        "DELETE FROM resource_cleanup_outbox WHERE status = 'failed'",
        "DELETE FROM resource_cleanup_outbox WHERE status = 'staged' AND storage_bytes > 0",
        "DELETE FROM resource_cleanup_outbox WHERE status = 'processing' AND delete_fenced_at IS NULL",
    ),
    # R67, R69: what is being removed gets no new owner
    "item_images_retired": (
        f"""INSERT INTO item_images (id, workspace_id, item_id, sequence, label, object_key, sha256, storage_bytes, media_type,
                                     width, height, canvas_uri)
            SELECT gen_random_uuid(), workspace_id, gen_random_uuid(), 1, 'late', resource_key, left(resource_key, 64), 1,
                   'image/png', 1, 1, 'late' {FENCED}""",
    ),
    "page_exports_retired": (
        f"""INSERT INTO page_exports (item_image_id, revision, format, workspace_id, object_key, sha256, size_bytes)
            SELECT gen_random_uuid(), 1, 'txt', workspace_id, resource_key, left(resource_key, 64), 1 {FENCED}""",
    ),
}

# The trigger that adds a row beside another, and those that write the time of a change, and a change.
OPENING = ("workspaces_quota",)
TOUCHING: dict[str, str] = {
    "contexts_touch": "description = 'new'",
    "items_touch": "name = 'new'",
    "ingest_batches_touch": "dispatch_generation = 7",
    "ingest_batch_files_touch": "source_uri = 'file:///new'",
    "annotation_pages_step": "revision = revision + 1",
    "transcription_jobs_touch": "error = 'new'",
    "webhook_deliveries_touch": "last_error = 'new'",
    "resource_cleanup_outbox_touch": "last_error = 'new'",
    "storage_quota_usage_touch": "limit_bytes = 7",
    "flyer_tagging_jobs_touch": "error = 'new'",
}
