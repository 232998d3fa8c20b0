-- Every object is owned by a row before its first byte is written: by its image (or export), or by a row of the cleanup outbox.
-- What is staged until now are exports, which do not count; objects of uploads that are under way have no row yet.
UPDATE resource_cleanup_outbox SET storage_bytes = 0 WHERE status = 'staged';
DELETE FROM resource_cleanup_outbox AS cleanup USING item_images AS image
WHERE cleanup.kind = 'upload_blob' AND cleanup.resource_key = image.object_key;
UPDATE resource_cleanup_outbox SET status = 'pending' WHERE kind = 'upload_blob' AND status = 'failed';
INSERT INTO resource_cleanup_outbox (id, workspace_id, kind, resource_key, storage_bytes, status, next_attempt_at)
SELECT gen_random_uuid(), file.workspace_id, 'upload_blob', file.object_key, file.size_bytes, 'staged',
       clock_timestamp() + interval '6 hours'
FROM ingest_batch_files AS file
WHERE file.object_key IS NOT NULL AND file.status IN ('pending', 'processing')
  AND NOT EXISTS (SELECT FROM item_images AS image WHERE image.object_key = file.object_key)
ON CONFLICT DO NOTHING;


-- Bytes of uploads, in each workspace and in all of them (scope 'global'): what there may be, what there is, what is promised.
-- Used are the bytes of images and of objects that wait to be removed; reserved those of reservations without an object.
CREATE TABLE storage_quota_usage (
    scope text PRIMARY KEY CONSTRAINT storage_quota_usage_scope_form
        CHECK (scope = 'global' OR scope ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$'),
    limit_bytes bigint NOT NULL CONSTRAINT storage_quota_usage_limit_range CHECK (limit_bytes >= 0),
    used_bytes bigint NOT NULL DEFAULT 0 CONSTRAINT storage_quota_usage_used_range CHECK (used_bytes >= 0),
    reserved_bytes bigint NOT NULL DEFAULT 0 CONSTRAINT storage_quota_usage_reserved_range CHECK (reserved_bytes >= 0),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER storage_quota_usage_touch BEFORE UPDATE ON storage_quota_usage FOR EACH ROW EXECUTE FUNCTION scribe_touch();
CREATE TRIGGER storage_quota_usage_keep BEFORE UPDATE ON storage_quota_usage
    FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns('scope');

WITH stored (workspace_id, size) AS (
    SELECT workspace_id, storage_bytes FROM item_images
    UNION ALL
    SELECT workspace_id, storage_bytes FROM resource_cleanup_outbox WHERE kind = 'upload_blob'
), used (scope, size) AS (
    SELECT workspace.id::text, coalesce(sum(stored.size), 0)
    FROM workspaces AS workspace LEFT JOIN stored ON stored.workspace_id = workspace.id GROUP BY workspace.id
    UNION ALL
    SELECT 'global', coalesce(sum(size), 0) FROM stored
)
INSERT INTO storage_quota_usage (scope, limit_bytes, used_bytes)
SELECT scope, greatest(2 * size, (CASE scope WHEN 'global' THEN 30 ELSE 5 END)::bigint << 30), size FROM used;

CREATE FUNCTION scribe_open_quota() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO storage_quota_usage (scope, limit_bytes) VALUES (NEW.id::text, 5::bigint << 30);
    RETURN NEW;
END $$;
CREATE TRIGGER workspaces_quota AFTER INSERT ON workspaces FOR EACH ROW EXECUTE FUNCTION scribe_open_quota();


-- Room that is promised: to a batch's file, until an object for it is bound (resource_key). It counts until it is swept away.
CREATE TABLE storage_reservations (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    batch_id uuid NOT NULL,
    sequence integer NOT NULL,
    reserved_bytes bigint NOT NULL CONSTRAINT storage_reservations_bytes_positive CHECK (reserved_bytes > 0),
    resource_key text CONSTRAINT storage_reservations_key_unique UNIQUE,
    expires_at timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT storage_reservations_one_a_file UNIQUE (batch_id, sequence)
);
CREATE INDEX storage_reservations_by_expiry ON storage_reservations (expires_at);
CREATE TRIGGER storage_reservations_keep BEFORE UPDATE ON storage_reservations FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns(
    'id', 'workspace_id', 'batch_id', 'sequence', 'reserved_bytes', 'created_at');


ALTER TABLE resource_cleanup_outbox
    ADD CONSTRAINT resource_cleanup_outbox_upload_goes_on CHECK (kind <> 'upload_blob' OR status <> 'failed'),
    ADD CONSTRAINT resource_cleanup_outbox_upload_key_form CHECK (
        kind <> 'upload_blob' OR resource_key ~ '^[0-9a-f]{64}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[a-z0-9]{2,5}$'),
    ADD CONSTRAINT resource_cleanup_outbox_staged_unfenced CHECK (status <> 'staged' OR delete_fenced_at IS NULL);
CREATE INDEX resource_cleanup_outbox_due ON resource_cleanup_outbox (next_attempt_at, id) WHERE status IN ('staged', 'pending');
CREATE INDEX resource_cleanup_outbox_held ON resource_cleanup_outbox (lease_until) WHERE status = 'processing';

-- Bytes and fence stay until the removal is confirmed; attempts at removing an upload are never forgotten.
CREATE FUNCTION scribe_cleanup_step() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.storage_bytes < OLD.storage_bytes
       OR (OLD.kind = 'upload_blob' AND NEW.attempt_count < OLD.attempt_count)
       OR (OLD.delete_fenced_at IS NOT NULL AND NEW.delete_fenced_at IS DISTINCT FROM OLD.delete_fenced_at)
       OR (OLD.delete_fenced_at IS NULL AND NEW.delete_fenced_at IS NOT NULL AND NEW.status <> 'processing')
    THEN
        RAISE EXCEPTION 'a removal keeps its bytes, its fence and its attempts until it is confirmed'
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER resource_cleanup_outbox_step BEFORE UPDATE ON resource_cleanup_outbox
    FOR EACH ROW EXECUTE FUNCTION scribe_cleanup_step();

-- A row goes with its worker, who has fenced it if its object is an upload's, or found that something refers to it; or, staged,
-- when an image has its bytes. What waits or has failed stays.
CREATE FUNCTION scribe_cleanup_stays() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT (CASE OLD.status
        WHEN 'processing' THEN
            OLD.kind <> 'upload_blob' OR OLD.delete_fenced_at IS NOT NULL
            OR EXISTS (SELECT FROM item_images AS image WHERE image.object_key = OLD.resource_key)
            OR EXISTS (SELECT FROM page_exports AS export WHERE export.object_key = OLD.resource_key)
        WHEN 'staged' THEN
            OLD.storage_bytes = 0 OR EXISTS (SELECT FROM item_images AS image WHERE image.object_key = OLD.resource_key)
        ELSE false
    END) THEN
        RAISE EXCEPTION 'a removal that is not confirmed is not forgotten' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END $$;
CREATE TRIGGER resource_cleanup_outbox_confirmed BEFORE DELETE ON resource_cleanup_outbox
    FOR EACH ROW EXECUTE FUNCTION scribe_cleanup_stays();
CREATE TRIGGER resource_cleanup_outbox_stay BEFORE TRUNCATE ON resource_cleanup_outbox
    FOR EACH STATEMENT EXECUTE FUNCTION scribe_refuse_change();

-- Nothing refers to an object whose removal may have begun.
CREATE FUNCTION scribe_refuse_fenced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM resource_cleanup_outbox AS cleanup
               WHERE cleanup.kind = 'upload_blob' AND cleanup.resource_key = NEW.object_key AND cleanup.delete_fenced_at IS NOT NULL)
    THEN
        RAISE EXCEPTION 'the object is retired: it is being removed' USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER item_images_retired BEFORE INSERT ON item_images FOR EACH ROW EXECUTE FUNCTION scribe_refuse_fenced();
CREATE TRIGGER page_exports_retired BEFORE INSERT ON page_exports FOR EACH ROW EXECUTE FUNCTION scribe_refuse_fenced();
