-- Evidence goes only with the item that it is about, or when its time is over: whoever deletes it says so for his transaction,
-- by SET LOCAL scribe.deleting = 'item' or 'retention'.
CREATE OR REPLACE FUNCTION scribe_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND current_setting('scribe.deleting', true) IN ('item', 'retention') THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION '% of % is refused: its rows are evidence', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;


-- due_at: from when a claim may take the job; null once it is terminal.
ALTER TABLE transcription_jobs
    ADD COLUMN supersedes uuid,
    ADD COLUMN due_at timestamptz GENERATED ALWAYS AS (
        CASE status WHEN 'pending' THEN coalesce(retry_after, created_at) WHEN 'running' THEN lease_until END) STORED,
    ADD CONSTRAINT transcription_jobs_supersedes_another CHECK (supersedes <> id);
DROP INDEX transcription_jobs_open;
CREATE INDEX transcription_jobs_due ON transcription_jobs (workspace_id, due_at, id) WHERE due_at IS NOT NULL;
CREATE INDEX transcription_jobs_due_in_batch ON transcription_jobs (batch_id, due_at, id) WHERE due_at IS NOT NULL;
DROP TRIGGER transcription_jobs_keep ON transcription_jobs;
CREATE TRIGGER transcription_jobs_keep BEFORE UPDATE ON transcription_jobs FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns(
    'id', 'workspace_id', 'item_image_id', 'batch_id', 'context_id', 'context_snapshot', 'input_revision', 'max_attempts',
    'supersedes', 'created_at');
CREATE TRIGGER transcription_jobs_evidence BEFORE DELETE ON transcription_jobs
    FOR EACH ROW EXECUTE FUNCTION scribe_refuse_change();

-- A terminal job is evidence too: nothing of it changes any more.
CREATE OR REPLACE FUNCTION scribe_job_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status IN ('pending', 'running') THEN
        IF NEW.attempt_count < OLD.attempt_count OR (OLD.status = 'pending' AND NEW.status IN ('completed', 'failed')) THEN
            RAISE EXCEPTION 'a job does not go from % to %', OLD.status, NEW.status USING ERRCODE = 'restrict_violation';
        END IF;
    ELSIF to_jsonb(NEW) - 'updated_at' <> to_jsonb(OLD) - 'updated_at' THEN
        RAISE EXCEPTION 'a job that is % does not change', OLD.status USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER transcription_jobs_stay BEFORE TRUNCATE ON transcription_jobs
    FOR EACH STATEMENT EXECUTE FUNCTION scribe_refuse_change();
CREATE TRIGGER transcription_job_attempts_stay BEFORE TRUNCATE ON transcription_job_attempts
    FOR EACH STATEMENT EXECUTE FUNCTION scribe_refuse_change();
CREATE TRIGGER annotation_page_revisions_stay BEFORE TRUNCATE ON annotation_page_revisions
    FOR EACH STATEMENT EXECUTE FUNCTION scribe_refuse_change();
CREATE TRIGGER ocr_runs_stay BEFORE TRUNCATE ON ocr_runs
    FOR EACH STATEMENT EXECUTE FUNCTION scribe_refuse_change();

-- Which workspace was served last, by the first bits of its id. A sequence, so that claimers do not wait for one another.
CREATE SEQUENCE claim_turns;


CREATE TABLE webhook_subscriptions (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    target_url text NOT NULL CONSTRAINT webhook_subscriptions_target_url_form CHECK (target_url ~ '^https?://[^\s]+$'),
    signing_secret text NOT NULL
        CONSTRAINT webhook_subscriptions_secret_length CHECK (octet_length(signing_secret) BETWEEN 32 AND 1024),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT webhook_subscriptions_target_unique UNIQUE (workspace_id, target_url)
);

CREATE TABLE webhook_deliveries (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    event_id uuid NOT NULL,
    subscription_id uuid NOT NULL,
    status text NOT NULL DEFAULT 'pending'
        CONSTRAINT webhook_deliveries_status CHECK (status IN ('pending', 'processing', 'delivered', 'failed')),
    attempt_count integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL DEFAULT 10,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_owner text,
    lease_token text CONSTRAINT webhook_deliveries_lease_token_unique UNIQUE,
    lease_until timestamptz,
    last_error text CONSTRAINT webhook_deliveries_last_error_length CHECK (octet_length(last_error) <= 128),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT webhook_deliveries_once UNIQUE (event_id, subscription_id),
    CONSTRAINT webhook_deliveries_attempts CHECK (attempt_count BETWEEN 0 AND max_attempts),
    CONSTRAINT webhook_deliveries_lease CHECK (
        num_nonnulls(lease_owner, lease_token, lease_until) = CASE status WHEN 'processing' THEN 3 ELSE 0 END)
);
CREATE INDEX webhook_deliveries_due ON webhook_deliveries (next_attempt_at, id) WHERE status IN ('pending', 'processing');
CREATE TRIGGER webhook_deliveries_touch BEFORE UPDATE ON webhook_deliveries FOR EACH ROW EXECUTE FUNCTION scribe_touch();
CREATE TRIGGER webhook_deliveries_step BEFORE UPDATE ON webhook_deliveries
    FOR EACH ROW EXECUTE FUNCTION scribe_terminal_stays('delivered', 'failed');
CREATE TRIGGER webhook_deliveries_keep BEFORE UPDATE ON webhook_deliveries FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns(
    'id', 'workspace_id', 'event_id', 'subscription_id', 'max_attempts', 'created_at');


-- What is to be removed outside the database. The row outlives whoever asked for it, until the removal is confirmed.
CREATE TABLE resource_cleanup_outbox (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    kind text NOT NULL CONSTRAINT resource_cleanup_outbox_kind
        CHECK (kind IN ('upload_blob', 'triplet_presentation_image', 'triplet_presentation_item')),
    resource_key text NOT NULL CONSTRAINT resource_cleanup_outbox_key_present CHECK (resource_key <> ''),
    storage_bytes bigint NOT NULL DEFAULT 0 CONSTRAINT resource_cleanup_outbox_bytes_range CHECK (storage_bytes >= 0),
    delete_fenced_at timestamptz,
    status text NOT NULL DEFAULT 'pending'
        CONSTRAINT resource_cleanup_outbox_status CHECK (status IN ('staged', 'pending', 'processing', 'failed')),
    attempt_count integer NOT NULL DEFAULT 0 CONSTRAINT resource_cleanup_outbox_attempts CHECK (attempt_count >= 0),
    max_attempts integer NOT NULL DEFAULT 20,
    next_attempt_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_owner text,
    lease_token text CONSTRAINT resource_cleanup_outbox_lease_token_unique UNIQUE,
    lease_until timestamptz,
    last_error text CONSTRAINT resource_cleanup_outbox_last_error_length CHECK (octet_length(last_error) <= 128),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT resource_cleanup_outbox_once UNIQUE (kind, resource_key),
    CONSTRAINT resource_cleanup_outbox_lease CHECK (
        num_nonnulls(lease_owner, lease_token, lease_until) = CASE status WHEN 'processing' THEN 3 ELSE 0 END)
);
CREATE TRIGGER resource_cleanup_outbox_touch BEFORE UPDATE ON resource_cleanup_outbox
    FOR EACH ROW EXECUTE FUNCTION scribe_touch();
CREATE TRIGGER resource_cleanup_outbox_keep BEFORE UPDATE ON resource_cleanup_outbox
    FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns('id', 'workspace_id', 'kind', 'resource_key', 'created_at');


-- Who intervened, and why.
CREATE TABLE operator_audit (
    id uuid PRIMARY KEY,
    actor text NOT NULL CONSTRAINT operator_audit_actor_length CHECK (char_length(actor) BETWEEN 1 AND 255),
    action text NOT NULL CONSTRAINT operator_audit_action_present CHECK (action <> ''),
    subject text NOT NULL CONSTRAINT operator_audit_subject_present CHECK (subject <> ''),
    reason text NOT NULL CONSTRAINT operator_audit_reason_length CHECK (char_length(reason) <= 1024),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX operator_audit_by_subject ON operator_audit (subject, created_at);
CREATE TRIGGER operator_audit_evidence BEFORE UPDATE OR DELETE ON operator_audit
    FOR EACH ROW EXECUTE FUNCTION scribe_refuse_change();
CREATE TRIGGER operator_audit_stay BEFORE TRUNCATE ON operator_audit
    FOR EACH STATEMENT EXECUTE FUNCTION scribe_refuse_change();

-- When each sensor last looked and found the database in order.
CREATE TABLE sensor_heartbeats (
    name text PRIMARY KEY,
    ticked_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
