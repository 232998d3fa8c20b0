-- I8 what is used and reserved is not what is stored, waits to be removed, and is promised
WITH stored (workspace_id, used, reserved) AS (
    SELECT workspace_id, storage_bytes, 0 FROM item_images
    UNION ALL SELECT workspace_id, storage_bytes, 0 FROM resource_cleanup_outbox WHERE kind = 'upload_blob'
    UNION ALL SELECT workspace_id, 0, reserved_bytes FROM storage_reservations WHERE resource_key IS NULL
), found (scope, used, reserved) AS (
    SELECT workspace.id::text, coalesce(sum(stored.used), 0), coalesce(sum(stored.reserved), 0)
    FROM workspaces AS workspace LEFT JOIN stored ON stored.workspace_id = workspace.id GROUP BY workspace.id
    UNION ALL SELECT 'global', coalesce(sum(used), 0), coalesce(sum(reserved), 0) FROM stored
)
SELECT scope, counter.used_bytes AS used, found.used AS "used found", counter.reserved_bytes AS reserved,
       found.reserved AS "reserved found"
FROM found FULL JOIN storage_quota_usage AS counter USING (scope)
WHERE (counter.used_bytes, counter.reserved_bytes) IS DISTINCT FROM (found.used::bigint, found.reserved::bigint);

-- I9 something refers to an object whose removal has begun
SELECT cleanup.resource_key, cleanup.delete_fenced_at AS "begun at" FROM resource_cleanup_outbox AS cleanup
WHERE cleanup.delete_fenced_at IS NOT NULL AND (
    EXISTS (SELECT FROM item_images AS image WHERE image.object_key = cleanup.resource_key)
    OR EXISTS (SELECT FROM page_exports AS export WHERE export.object_key = cleanup.resource_key));

-- I10 an image's object waits to be removed
SELECT image.id, image.object_key AS object FROM item_images AS image
JOIN resource_cleanup_outbox AS cleanup ON cleanup.kind = 'upload_blob' AND cleanup.resource_key = image.object_key;

-- I17 item_images: no item
SELECT child.id, child.item_id AS item FROM item_images AS child
LEFT JOIN items AS parent ON parent.id = child.item_id WHERE parent.id IS NULL;

-- I17 ingest_batches: no item
SELECT child.id, child.item_id AS item FROM ingest_batches AS child
LEFT JOIN items AS parent ON parent.id = child.item_id WHERE parent.id IS NULL;

-- I17 ingest_batches: no context
SELECT child.id, child.context_id AS context FROM ingest_batches AS child
LEFT JOIN contexts AS parent ON parent.id = child.context_id WHERE parent.id IS NULL;

-- I17 ingest_batch_files: no batch
SELECT child.batch_id, child.sequence, child.frame FROM ingest_batch_files AS child
LEFT JOIN ingest_batches AS parent ON parent.id = child.batch_id WHERE parent.id IS NULL;

-- I17 ingest_batch_files: no image
SELECT child.batch_id, child.sequence, child.frame, child.item_image_id AS image FROM ingest_batch_files AS child
LEFT JOIN item_images AS parent ON parent.id = child.item_image_id
WHERE child.item_image_id IS NOT NULL AND parent.id IS NULL;

-- I17 annotation_pages: no image
SELECT child.item_image_id FROM annotation_pages AS child
LEFT JOIN item_images AS parent ON parent.id = child.item_image_id WHERE parent.id IS NULL;

-- I17 annotation_page_revisions: no page
SELECT child.item_image_id, child.revision FROM annotation_page_revisions AS child
LEFT JOIN annotation_pages AS parent ON parent.item_image_id = child.item_image_id WHERE parent.item_image_id IS NULL;

-- I17 annotation_page_revisions: no job
SELECT child.item_image_id, child.revision, child.job_id AS job FROM annotation_page_revisions AS child
LEFT JOIN transcription_jobs AS parent ON parent.id = child.job_id WHERE child.job_id IS NOT NULL AND parent.id IS NULL;

-- I17 annotations: no page
SELECT child.item_image_id, child.annotation_id AS annotation FROM annotations AS child
LEFT JOIN annotation_pages AS parent ON parent.item_image_id = child.item_image_id WHERE parent.item_image_id IS NULL;

-- I17 transcription_jobs: no page
SELECT child.id, child.item_image_id AS image FROM transcription_jobs AS child
LEFT JOIN annotation_pages AS parent ON parent.item_image_id = child.item_image_id WHERE parent.item_image_id IS NULL;

-- I17 transcription_jobs: no batch
SELECT child.id, child.batch_id AS batch FROM transcription_jobs AS child
LEFT JOIN ingest_batches AS parent ON parent.id = child.batch_id WHERE child.batch_id IS NOT NULL AND parent.id IS NULL;

-- I17 transcription_jobs: no context
SELECT child.id, child.context_id AS context FROM transcription_jobs AS child
LEFT JOIN contexts AS parent ON parent.id = child.context_id WHERE parent.id IS NULL;

-- I17 transcription_jobs: no superseded job of the same image
SELECT child.id, child.supersedes FROM transcription_jobs AS child
LEFT JOIN transcription_jobs AS parent ON parent.id = child.supersedes AND parent.item_image_id = child.item_image_id
WHERE child.supersedes IS NOT NULL AND (parent.id IS NULL OR parent.status <> 'superseded');

-- I17 transcription_job_attempts: no job
SELECT child.job_id, child.attempt_number AS attempt FROM transcription_job_attempts AS child
LEFT JOIN transcription_jobs AS parent ON parent.id = child.job_id WHERE parent.id IS NULL;

-- I17 ocr_runs: no image
SELECT child.id, child.item_image_id AS image FROM ocr_runs AS child
LEFT JOIN item_images AS parent ON parent.id = child.item_image_id WHERE parent.id IS NULL;

-- I17 ocr_runs: no job
SELECT child.id, child.job_id AS job FROM ocr_runs AS child
LEFT JOIN transcription_jobs AS parent ON parent.id = child.job_id WHERE child.job_id IS NOT NULL AND parent.id IS NULL;

-- I17 current_ocr_runs: no run of the same image
SELECT child.item_image_id, child.ocr_run_id AS run FROM current_ocr_runs AS child
LEFT JOIN ocr_runs AS parent ON parent.id = child.ocr_run_id AND parent.item_image_id = child.item_image_id WHERE parent.id IS NULL;

-- I17 event_outbox: no job, although the image is there
SELECT child.id, child.job_id AS job FROM event_outbox AS child JOIN item_images AS image ON image.id = child.item_image_id
LEFT JOIN transcription_jobs AS parent ON parent.id = child.job_id WHERE child.job_id IS NOT NULL AND parent.id IS NULL;

-- I17 webhook_deliveries: no event
SELECT child.id, child.event_id AS event FROM webhook_deliveries AS child
LEFT JOIN event_outbox AS parent ON parent.id = child.event_id WHERE parent.id IS NULL;

-- I17 webhook_deliveries: no subscription
SELECT child.id, child.subscription_id AS subscription FROM webhook_deliveries AS child
LEFT JOIN webhook_subscriptions AS parent ON parent.id = child.subscription_id WHERE parent.id IS NULL;

-- I17 context_selection_rules: no context of its workspace, or of all
SELECT child.id, child.context_id AS context, child.workspace_id AS workspace FROM context_selection_rules AS child
LEFT JOIN contexts AS parent
    ON parent.id = child.context_id AND (parent.workspace_id IS NULL OR parent.workspace_id = child.workspace_id)
WHERE parent.id IS NULL;

-- I17 storage_reservations: no file
SELECT child.id, child.batch_id AS batch, child.sequence FROM storage_reservations AS child
LEFT JOIN ingest_batch_files AS parent ON (parent.batch_id, parent.sequence, parent.frame) = (child.batch_id, child.sequence, 1)
WHERE parent.batch_id IS NULL;

-- I17 page_exports: no revision, or no image
SELECT child.item_image_id, child.revision, child.format FROM page_exports AS child
LEFT JOIN item_images AS image ON image.id = child.item_image_id
LEFT JOIN annotation_page_revisions AS parent
    ON parent.item_image_id = child.item_image_id AND parent.revision = child.revision
WHERE image.id IS NULL OR parent.revision IS NULL;

-- I17 page_exports: the object waits to be removed, or is a scan's
SELECT export.object_key, export.item_image_id AS image FROM page_exports AS export
LEFT JOIN resource_cleanup_outbox AS cleanup ON cleanup.kind = 'upload_blob' AND cleanup.resource_key = export.object_key
LEFT JOIN item_images AS image ON image.object_key = export.object_key
WHERE cleanup.id IS NOT NULL OR image.id IS NOT NULL;

-- I17 rows without a workspace
SELECT owned.of_table AS "table", owned.workspace_id AS workspace FROM (
    SELECT 'items' AS of_table, workspace_id FROM items UNION SELECT 'item_images', workspace_id FROM item_images
    UNION SELECT 'ingest_batches', workspace_id FROM ingest_batches
    UNION SELECT 'ingest_batch_files', workspace_id FROM ingest_batch_files
    UNION SELECT 'annotation_pages', workspace_id FROM annotation_pages
    UNION SELECT 'annotation_page_revisions', workspace_id FROM annotation_page_revisions
    UNION SELECT 'annotations', workspace_id FROM annotations
    UNION SELECT 'transcription_jobs', workspace_id FROM transcription_jobs
    UNION SELECT 'transcription_job_attempts', workspace_id FROM transcription_job_attempts
    UNION SELECT 'ocr_runs', workspace_id FROM ocr_runs UNION SELECT 'current_ocr_runs', workspace_id FROM current_ocr_runs
    UNION SELECT 'event_outbox', workspace_id FROM event_outbox
    UNION SELECT 'webhook_subscriptions', workspace_id FROM webhook_subscriptions
    UNION SELECT 'webhook_deliveries', workspace_id FROM webhook_deliveries
    UNION SELECT 'resource_cleanup_outbox', workspace_id FROM resource_cleanup_outbox
    UNION SELECT 'page_exports', workspace_id FROM page_exports
    UNION SELECT 'contexts', workspace_id FROM contexts WHERE workspace_id IS NOT NULL
    UNION SELECT 'context_selection_rules', workspace_id FROM context_selection_rules
    UNION SELECT 'storage_reservations', workspace_id FROM storage_reservations) AS owned
LEFT JOIN workspaces AS parent ON parent.id = owned.workspace_id WHERE parent.id IS NULL;
