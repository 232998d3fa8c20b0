-- There are no foreign keys: ownership is checked by the repository layer, and an audit finds orphans.
-- Enumerations are text with a named CHECK, so that one can be extended without a lock on a type.

-- What must never happen is refused here, whoever asks.

CREATE FUNCTION scribe_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% of % is refused: its rows are evidence', TG_OP, TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

-- Names the columns (as arguments) that keep the value they were inserted with.
CREATE FUNCTION scribe_keep_columns() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    before_row jsonb := to_jsonb(OLD);
    after_row jsonb := to_jsonb(NEW);
    kept text;
BEGIN
    FOREACH kept IN ARRAY TG_ARGV LOOP
        IF before_row -> kept IS DISTINCT FROM after_row -> kept THEN
            RAISE EXCEPTION '%.% never changes', TG_TABLE_NAME, kept USING ERRCODE = 'restrict_violation';
        END IF;
    END LOOP;
    RETURN NEW;
END $$;

-- Takes the terminal statuses as arguments.
CREATE FUNCTION scribe_terminal_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.status = ANY (TG_ARGV) AND NEW.status <> OLD.status THEN
        RAISE EXCEPTION '% that is % stays so', TG_TABLE_NAME, OLD.status USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE FUNCTION scribe_touch() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;


CREATE TABLE workspaces (
    id uuid PRIMARY KEY,
    name text NOT NULL CONSTRAINT workspaces_name_unique UNIQUE
        CONSTRAINT workspaces_name_length CHECK (char_length(name) BETWEEN 1 AND 255),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- A context without a workspace belongs to the system and is visible to all.
CREATE TABLE contexts (
    id uuid PRIMARY KEY,
    workspace_id uuid,
    name text NOT NULL CONSTRAINT contexts_name_length CHECK (char_length(name) BETWEEN 1 AND 255),
    description text NOT NULL DEFAULT '',
    is_default boolean NOT NULL DEFAULT false,
    segmentation_model text NOT NULL
        CONSTRAINT contexts_segmentation_model_form CHECK (segmentation_model ~ '^[a-z0-9][a-z0-9._:-]{0,254}$'),
    transcription_provider text NOT NULL
        CONSTRAINT contexts_transcription_provider_form CHECK (transcription_provider ~ '^[a-z][a-z0-9_-]{0,63}$'),
    transcription_model text NOT NULL,
    temperature double precision CONSTRAINT contexts_temperature_range CHECK (temperature BETWEEN 0 AND 2),
    system_prompt text CONSTRAINT contexts_system_prompt_length CHECK (char_length(system_prompt) <= 8192),
    segment_cap integer NOT NULL DEFAULT 500 CONSTRAINT contexts_segment_cap_positive CHECK (segment_cap > 0),
    line_concurrency integer NOT NULL DEFAULT 6 CONSTRAINT contexts_line_concurrency_positive CHECK (line_concurrency > 0),
    line_timeout_s double precision NOT NULL DEFAULT 6 CONSTRAINT contexts_line_timeout_positive CHECK (line_timeout_s > 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT contexts_name_unique UNIQUE NULLS NOT DISTINCT (workspace_id, name)
);
CREATE UNIQUE INDEX contexts_one_default ON contexts (workspace_id) NULLS NOT DISTINCT WHERE is_default;
CREATE TRIGGER contexts_touch BEFORE UPDATE ON contexts FOR EACH ROW EXECUTE FUNCTION scribe_touch();

INSERT INTO workspaces (id, name) VALUES ('01900000-0000-7000-8000-000000000001', 'default');
INSERT INTO contexts (id, name, description, is_default, segmentation_model, transcription_provider, transcription_model, segment_cap)
VALUES
    ('01900000-0000-7000-8000-000000000011', 'letter', 'Letters, typed or by hand', true,
     'kraken-blla', 'local', 'PP-OCRv6_rec_small', 500),
    ('01900000-0000-7000-8000-000000000012', 'manuscript', 'Medieval and early modern manuscripts', false,
     'kraken-blla', 'local', 'PP-OCRv6_rec_small', 500),
    ('01900000-0000-7000-8000-000000000013', 'newspaper', 'Historical newspapers', false,
     'kraken-blla', 'local', 'PP-OCRv6_rec_small', 2000);


CREATE TABLE items (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    name text NOT NULL CONSTRAINT items_name_present CHECK (name <> ''),
    source_type text NOT NULL CONSTRAINT items_source_type CHECK (source_type IN ('url', 'upload', 'manifest', 'hocr')),
    source_url text,
    metadata jsonb NOT NULL DEFAULT '{}' CONSTRAINT items_metadata_object CHECK (jsonb_typeof(metadata) = 'object'),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER items_touch BEFORE UPDATE ON items FOR EACH ROW EXECUTE FUNCTION scribe_touch();

-- The name of an object says what bytes it holds and is never used twice: <SHA-256>-<random UUID>.<extension>.
CREATE TABLE item_images (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    item_id uuid NOT NULL,
    sequence integer NOT NULL CONSTRAINT item_images_sequence_positive CHECK (sequence > 0),
    label text NOT NULL,
    object_key text NOT NULL CONSTRAINT item_images_object_key_unique UNIQUE
        CONSTRAINT item_images_object_key_form
        CHECK (object_key ~ '^[0-9a-f]{64}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[a-z0-9]{2,5}$'),
    sha256 text NOT NULL,
    storage_bytes bigint NOT NULL CONSTRAINT item_images_storage_bytes_positive CHECK (storage_bytes > 0),
    media_type text NOT NULL,
    width integer NOT NULL CONSTRAINT item_images_width_positive CHECK (width > 0),
    height integer NOT NULL CONSTRAINT item_images_height_positive CHECK (height > 0),
    canvas_uri text NOT NULL CONSTRAINT item_images_canvas_unique UNIQUE,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT item_images_sequence_unique UNIQUE (item_id, sequence),
    CONSTRAINT item_images_key_names_bytes CHECK (left(object_key, 64) = sha256)
);
CREATE TRIGGER item_images_keep BEFORE UPDATE ON item_images FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns(
    'id', 'workspace_id', 'item_id', 'object_key', 'sha256', 'storage_bytes', 'media_type', 'width', 'height', 'canvas_uri');


CREATE TABLE ingest_batches (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    item_id uuid NOT NULL CONSTRAINT ingest_batches_item_unique UNIQUE,
    context_id uuid NOT NULL,
    context_snapshot text NOT NULL
        CONSTRAINT ingest_batches_snapshot_object CHECK (json_typeof(context_snapshot::json) = 'object'),
    request_hash text NOT NULL CONSTRAINT ingest_batches_request_hash_form CHECK (request_hash ~ '^[0-9a-f]{64}$'),
    again integer NOT NULL DEFAULT 0 CONSTRAINT ingest_batches_again_range CHECK (again >= 0),
    status text NOT NULL DEFAULT 'pending'
        CONSTRAINT ingest_batches_status CHECK (status IN ('pending', 'running', 'completed', 'failed', 'canceled')),
    dispatch_generation integer NOT NULL DEFAULT 0
        CONSTRAINT ingest_batches_dispatch_generation_range CHECK (dispatch_generation >= 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    CONSTRAINT ingest_batches_finished CHECK ((status IN ('completed', 'failed', 'canceled')) = (finished_at IS NOT NULL))
);
CREATE UNIQUE INDEX ingest_batches_request_unique ON ingest_batches (request_hash, again) WHERE status <> 'canceled';
CREATE INDEX ingest_batches_open ON ingest_batches (created_at, id) WHERE status IN ('pending', 'running');
CREATE TRIGGER ingest_batches_touch BEFORE UPDATE ON ingest_batches FOR EACH ROW EXECUTE FUNCTION scribe_touch();
CREATE TRIGGER ingest_batches_step BEFORE UPDATE ON ingest_batches
    FOR EACH ROW EXECUTE FUNCTION scribe_terminal_stays('completed', 'failed', 'canceled');
CREATE TRIGGER ingest_batches_keep BEFORE UPDATE ON ingest_batches FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns(
    'id', 'workspace_id', 'item_id', 'context_id', 'context_snapshot', 'request_hash', 'again', 'created_at');

-- object_key is the object that the present or last claim may have written; the next claim removes it while no image refers to it.
CREATE TABLE ingest_batch_files (
    batch_id uuid NOT NULL,
    sequence integer NOT NULL CONSTRAINT ingest_batch_files_sequence_positive CHECK (sequence > 0),
    frame integer NOT NULL DEFAULT 1 CONSTRAINT ingest_batch_files_frame_positive CHECK (frame > 0),
    workspace_id uuid NOT NULL,
    filename text NOT NULL,
    source_uri text NOT NULL,
    size_bytes bigint NOT NULL CONSTRAINT ingest_batch_files_size_range CHECK (size_bytes >= 0),
    content_sha256 text NOT NULL CONSTRAINT ingest_batch_files_sha256_form CHECK (content_sha256 ~ '^[0-9a-f]{64}$'),
    status text NOT NULL DEFAULT 'pending'
        CONSTRAINT ingest_batch_files_status CHECK (status IN ('pending', 'processing', 'completed', 'failed', 'canceled')),
    retry_after timestamptz,
    lease_owner text,
    lease_token text CONSTRAINT ingest_batch_files_lease_token_unique UNIQUE,
    lease_until timestamptz,
    attempt_count integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL,
    object_key text,
    item_image_id uuid CONSTRAINT ingest_batch_files_image_unique UNIQUE,
    error_category text,
    error text CONSTRAINT ingest_batch_files_error_length CHECK (char_length(error) <= 1024),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (batch_id, sequence, frame),
    CONSTRAINT ingest_batch_files_attempts CHECK (attempt_count BETWEEN 0 AND max_attempts),
    CONSTRAINT ingest_batch_files_lease CHECK (
        num_nonnulls(lease_owner, lease_token, lease_until) = CASE status WHEN 'processing' THEN 3 ELSE 0 END),
    CONSTRAINT ingest_batch_files_completed CHECK (status <> 'completed' OR item_image_id IS NOT NULL),
    CONSTRAINT ingest_batch_files_failed CHECK ((status = 'failed') = (error_category IS NOT NULL)),
    CONSTRAINT ingest_batch_files_error_category CHECK (error_category IN (
        'invalid_request', 'authentication', 'canceled', 'timeout', 'transport', 'rate_limited', 'upstream',
        'response_too_large', 'invalid_response', 'unclassified', 'snapshot_invalid', 'interrupted', 'attempts_exhausted',
        'empty', 'damaged', 'unsupported_type', 'too_large', 'unreadable'))
);
CREATE TRIGGER ingest_batch_files_touch BEFORE UPDATE ON ingest_batch_files FOR EACH ROW EXECUTE FUNCTION scribe_touch();
CREATE TRIGGER ingest_batch_files_step BEFORE UPDATE ON ingest_batch_files
    FOR EACH ROW EXECUTE FUNCTION scribe_terminal_stays('completed', 'failed', 'canceled');
CREATE TRIGGER ingest_batch_files_keep BEFORE UPDATE ON ingest_batch_files FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns(
    'batch_id', 'sequence', 'frame', 'workspace_id', 'filename', 'size_bytes', 'content_sha256');


-- Payloads are text: jsonb would reorder keys, and a failed line must keep its bytes.
CREATE TABLE annotation_pages (
    item_image_id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    page_id text NOT NULL CONSTRAINT annotation_pages_page_id_unique UNIQUE
        CONSTRAINT annotation_pages_page_id_length CHECK (octet_length(page_id) <= 512),
    canvas_uri text NOT NULL,
    payload text NOT NULL CONSTRAINT annotation_pages_payload_object CHECK (json_typeof(payload::json) = 'object'),
    revision integer NOT NULL CONSTRAINT annotation_pages_revision_positive CHECK (revision > 0),
    updated_by text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE FUNCTION scribe_page_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.revision <> (CASE TG_OP WHEN 'INSERT' THEN 1 ELSE OLD.revision + 1 END) THEN
        RAISE EXCEPTION 'page revisions go up by one' USING ERRCODE = 'restrict_violation';
    END IF;
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER annotation_pages_step BEFORE INSERT OR UPDATE ON annotation_pages
    FOR EACH ROW EXECUTE FUNCTION scribe_page_step();
CREATE TRIGGER annotation_pages_keep BEFORE UPDATE ON annotation_pages FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns(
    'item_image_id', 'workspace_id', 'page_id', 'canvas_uri', 'created_at');

CREATE TABLE annotation_page_revisions (
    item_image_id uuid NOT NULL,
    revision integer NOT NULL CONSTRAINT annotation_page_revisions_revision_positive CHECK (revision > 0),
    workspace_id uuid NOT NULL,
    payload text NOT NULL,
    author_kind text NOT NULL
        CONSTRAINT annotation_page_revisions_author_kind CHECK (author_kind IN ('ocr', 'human', 'import', 'reprocess')),
    author text NOT NULL,
    job_id uuid,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (item_image_id, revision)
);
CREATE TRIGGER annotation_page_revisions_evidence BEFORE UPDATE OR DELETE ON annotation_page_revisions
    FOR EACH ROW EXECUTE FUNCTION scribe_refuse_change();

-- Derived from the page's head revision; the configuration 'simple' knows no language.
CREATE TABLE annotations (
    item_image_id uuid NOT NULL,
    annotation_id text NOT NULL CONSTRAINT annotations_id_length CHECK (octet_length(annotation_id) <= 512),
    workspace_id uuid NOT NULL,
    granularity text NOT NULL CONSTRAINT annotations_granularity
        CHECK (granularity IN ('page', 'block', 'paragraph', 'line', 'word', 'glyph')),
    position integer NOT NULL CONSTRAINT annotations_position_range CHECK (position >= 0),
    text text NOT NULL,
    search tsvector NOT NULL GENERATED ALWAYS AS (to_tsvector('simple', left(text, 100000))) STORED,
    PRIMARY KEY (item_image_id, annotation_id),
    CONSTRAINT annotations_position_unique UNIQUE (item_image_id, position)
);
CREATE INDEX annotations_search ON annotations USING gin (search);


CREATE TABLE transcription_jobs (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    item_image_id uuid NOT NULL,
    batch_id uuid,
    context_id uuid NOT NULL,
    context_snapshot text NOT NULL
        CONSTRAINT transcription_jobs_snapshot_object CHECK (json_typeof(context_snapshot::json) = 'object'),
    input_revision integer NOT NULL CONSTRAINT transcription_jobs_input_revision_positive CHECK (input_revision > 0),
    status text NOT NULL DEFAULT 'pending' CONSTRAINT transcription_jobs_status
        CHECK (status IN ('pending', 'running', 'completed', 'failed', 'canceled', 'superseded')),
    total_segments integer NOT NULL DEFAULT 0,
    completed_segments integer NOT NULL DEFAULT 0,
    failed_segments integer NOT NULL DEFAULT 0,
    attempt_count integer NOT NULL DEFAULT 0,
    max_attempts integer NOT NULL CONSTRAINT transcription_jobs_max_attempts_positive CHECK (max_attempts > 0),
    retry_after timestamptz,
    lease_owner text,
    lease_token text CONSTRAINT transcription_jobs_lease_token_unique UNIQUE,
    lease_until timestamptz,
    result_revision integer,
    preflight jsonb CONSTRAINT transcription_jobs_preflight_object CHECK (jsonb_typeof(preflight) = 'object'),
    passed boolean,
    failures jsonb NOT NULL DEFAULT '[]' CONSTRAINT transcription_jobs_failures_array CHECK (jsonb_typeof(failures) = 'array'),
    error text CONSTRAINT transcription_jobs_error_length CHECK (char_length(error) <= 1024),
    error_category text,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    CONSTRAINT transcription_jobs_lease CHECK (
        num_nonnulls(lease_owner, lease_token, lease_until) = CASE status WHEN 'running' THEN 3 ELSE 0 END),
    CONSTRAINT transcription_jobs_attempts CHECK (attempt_count BETWEEN 0 AND max_attempts),
    CONSTRAINT transcription_jobs_claimed CHECK (status NOT IN ('running', 'completed') OR attempt_count > 0),
    CONSTRAINT transcription_jobs_result CHECK (
        (status = 'completed') = (result_revision IS NOT NULL) AND (result_revision IS NULL OR result_revision = input_revision + 1)),
    CONSTRAINT transcription_jobs_failed CHECK ((status = 'failed') = (error_category IS NOT NULL)),
    CONSTRAINT transcription_jobs_finished CHECK ((status IN ('pending', 'running')) = (finished_at IS NULL)),
    CONSTRAINT transcription_jobs_segments CHECK (
        completed_segments >= 0 AND failed_segments >= 0 AND completed_segments + failed_segments <= total_segments),
    CONSTRAINT transcription_jobs_error_category CHECK (error_category IN (
        'invalid_request', 'authentication', 'canceled', 'timeout', 'transport', 'rate_limited', 'upstream',
        'response_too_large', 'invalid_response', 'unclassified', 'page_changed', 'page_unavailable', 'snapshot_invalid',
        'too_many_segments', 'no_text', 'interrupted', 'attempts_exhausted', 'credential',
        'empty', 'damaged', 'unsupported_type', 'too_large', 'unreadable'))
);
CREATE UNIQUE INDEX transcription_jobs_one_active ON transcription_jobs (item_image_id) WHERE status IN ('pending', 'running');
CREATE INDEX transcription_jobs_open ON transcription_jobs (created_at, id) WHERE status IN ('pending', 'running');
CREATE INDEX transcription_jobs_by_batch ON transcription_jobs (batch_id, created_at, id);
CREATE INDEX transcription_jobs_by_image ON transcription_jobs (item_image_id, created_at);
CREATE TRIGGER transcription_jobs_touch BEFORE UPDATE ON transcription_jobs FOR EACH ROW EXECUTE FUNCTION scribe_touch();
CREATE TRIGGER transcription_jobs_keep BEFORE UPDATE ON transcription_jobs FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns(
    'id', 'workspace_id', 'item_image_id', 'batch_id', 'context_id', 'context_snapshot', 'input_revision', 'max_attempts', 'created_at');

CREATE FUNCTION scribe_job_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.attempt_count < OLD.attempt_count OR NOT (
        CASE OLD.status
            WHEN 'pending' THEN NEW.status IN ('pending', 'running', 'canceled', 'superseded')
            WHEN 'running' THEN true
            ELSE NEW.status = OLD.status
        END)
    THEN
        RAISE EXCEPTION 'a job does not go from % to %', OLD.status, NEW.status USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER transcription_jobs_step BEFORE UPDATE ON transcription_jobs FOR EACH ROW EXECUTE FUNCTION scribe_job_step();

-- Evidence, never read as a retry control: a row is written once by the claim and closed once.
CREATE TABLE transcription_job_attempts (
    job_id uuid NOT NULL,
    attempt_number integer NOT NULL CONSTRAINT transcription_job_attempts_number_positive CHECK (attempt_number > 0),
    workspace_id uuid NOT NULL,
    context_snapshot text NOT NULL,
    input_revision integer NOT NULL CONSTRAINT transcription_job_attempts_input_revision_positive CHECK (input_revision > 0),
    lease_owner text NOT NULL,
    lease_token text NOT NULL CONSTRAINT transcription_job_attempts_lease_token_unique UNIQUE,
    outcome text NOT NULL DEFAULT 'running' CONSTRAINT transcription_job_attempts_outcome CHECK (outcome IN (
        'running', 'completed', 'retryable_failed', 'failed', 'canceled', 'superseded', 'lease_expired')),
    error_category text,
    result_revision integer,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz,
    PRIMARY KEY (job_id, attempt_number),
    CONSTRAINT transcription_job_attempts_finished CHECK ((outcome = 'running') = (finished_at IS NULL)),
    CONSTRAINT transcription_job_attempts_order CHECK (finished_at >= started_at),
    CONSTRAINT transcription_job_attempts_result CHECK ((outcome = 'completed') = (result_revision IS NOT NULL)),
    CONSTRAINT transcription_job_attempts_error CHECK ((outcome IN ('retryable_failed', 'failed')) = (error_category IS NOT NULL)),
    CONSTRAINT transcription_job_attempts_error_category CHECK (error_category IN (
        'invalid_request', 'authentication', 'canceled', 'timeout', 'transport', 'rate_limited', 'upstream',
        'response_too_large', 'invalid_response', 'unclassified', 'page_changed', 'page_unavailable', 'snapshot_invalid',
        'too_many_segments', 'no_text', 'interrupted', 'attempts_exhausted', 'credential',
        'empty', 'damaged', 'unsupported_type', 'too_large', 'unreadable'))
);
CREATE UNIQUE INDEX transcription_job_attempts_one_running ON transcription_job_attempts (job_id) WHERE outcome = 'running';

CREATE FUNCTION scribe_attempt_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.outcome <> 'running' OR NEW.outcome = 'running' THEN
        RAISE EXCEPTION 'an attempt is closed once' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER transcription_job_attempts_step BEFORE UPDATE ON transcription_job_attempts
    FOR EACH ROW EXECUTE FUNCTION scribe_attempt_step();
CREATE TRIGGER transcription_job_attempts_keep BEFORE UPDATE ON transcription_job_attempts
    FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns(
        'job_id', 'attempt_number', 'workspace_id', 'context_snapshot', 'input_revision', 'lease_owner', 'lease_token', 'started_at');
CREATE TRIGGER transcription_job_attempts_evidence BEFORE DELETE ON transcription_job_attempts
    FOR EACH ROW EXECUTE FUNCTION scribe_refuse_change();


-- What the engines first said of a page. Only the two metric columns may change.
CREATE TABLE ocr_runs (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    item_image_id uuid NOT NULL,
    job_id uuid,
    context_id uuid NOT NULL,
    provider text NOT NULL,
    model text NOT NULL,
    original_text text NOT NULL,
    canonical_revision integer,
    levenshtein_distance integer,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX ocr_runs_by_image ON ocr_runs (item_image_id);
CREATE TRIGGER ocr_runs_keep BEFORE UPDATE ON ocr_runs FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns(
    'id', 'workspace_id', 'item_image_id', 'job_id', 'context_id', 'provider', 'model', 'original_text', 'created_at');
CREATE TRIGGER ocr_runs_evidence BEFORE DELETE ON ocr_runs FOR EACH ROW EXECUTE FUNCTION scribe_refuse_change();

CREATE TABLE current_ocr_runs (
    item_image_id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    ocr_run_id uuid NOT NULL CONSTRAINT current_ocr_runs_run_unique UNIQUE,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);


CREATE TABLE event_outbox (
    id uuid PRIMARY KEY,
    event_type text NOT NULL,
    workspace_id uuid NOT NULL,
    item_image_id uuid,
    job_id uuid,
    subject text NOT NULL,
    body text NOT NULL CONSTRAINT event_outbox_body_object CHECK (json_typeof(body::json) = 'object'),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE UNIQUE INDEX event_outbox_one_completion ON event_outbox (job_id)
    WHERE event_type = 'dev.scribe.transcription.completed';
CREATE INDEX event_outbox_by_image ON event_outbox (item_image_id, created_at);


-- Where an image stands, derived from the rows. Files that are no image yet (ingest, validate) stand in ingest_batch_files.
CREATE VIEW item_image_stages AS
SELECT image.id AS item_image_id,
       image.workspace_id,
       image.item_id,
       CASE
           WHEN page.item_image_id IS NULL THEN 'segment'
           WHEN page.revision = 1 AND latest.status IS NOT NULL AND latest.status <> 'completed' THEN 'transcribe'
           ELSE 'review'
       END AS stage
FROM item_images AS image
LEFT JOIN annotation_pages AS page ON page.item_image_id = image.id
LEFT JOIN LATERAL (
    SELECT job.status FROM transcription_jobs AS job
    WHERE job.item_image_id = image.id ORDER BY job.created_at DESC, job.id DESC LIMIT 1
) AS latest ON true;
