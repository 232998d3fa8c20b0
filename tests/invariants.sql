-- I1 at most one running attempt a job, and only of a running job
SELECT job.id, job.status, count(attempt.job_id) FROM transcription_jobs AS job
LEFT JOIN transcription_job_attempts AS attempt ON attempt.job_id = job.id AND attempt.outcome = 'running'
GROUP BY job.id, job.status
HAVING count(attempt.job_id) <> CASE job.status WHEN 'running' THEN 1 ELSE 0 END;

-- I1 a running job and its running attempt hold the same lease
SELECT job.id FROM transcription_jobs AS job
JOIN transcription_job_attempts AS attempt ON attempt.job_id = job.id AND attempt.attempt_number = job.attempt_count
WHERE job.status = 'running' AND (attempt.outcome, attempt.lease_token, attempt.lease_owner)
    IS DISTINCT FROM ('running', job.lease_token, job.lease_owner);

-- I2 the attempts of a job are numbered 1 to attempt_count
SELECT job.id, job.attempt_count FROM transcription_jobs AS job
LEFT JOIN transcription_job_attempts AS attempt ON attempt.job_id = job.id
GROUP BY job.id, job.attempt_count
HAVING count(attempt.job_id) <> job.attempt_count OR coalesce(max(attempt.attempt_number), 0) <> job.attempt_count;

-- I3 an attempt carries its job's snapshot and input revision
SELECT attempt.job_id, attempt.attempt_number FROM transcription_job_attempts AS attempt
JOIN transcription_jobs AS job ON job.id = attempt.job_id
WHERE (attempt.context_snapshot, attempt.input_revision) IS DISTINCT FROM (job.context_snapshot, job.input_revision);

-- I4 a job is completed if and only if one attempt is, with one result revision of the page and one completion event
SELECT job.id FROM transcription_jobs AS job
WHERE CASE job.status WHEN 'completed' THEN 1 ELSE 0 END <> ALL (ARRAY[
    (SELECT count(*) FROM transcription_job_attempts AS attempt
     WHERE attempt.job_id = job.id AND attempt.outcome = 'completed' AND attempt.result_revision = job.result_revision),
    (SELECT count(*) FROM annotation_page_revisions AS revision
     WHERE revision.job_id = job.id AND revision.item_image_id = job.item_image_id AND revision.revision = job.result_revision),
    (SELECT count(*) FROM event_outbox AS event
     WHERE event.job_id = job.id AND event.event_type = 'dev.scribe.transcription.completed')])
   OR (SELECT count(*) FROM annotation_page_revisions AS revision WHERE revision.job_id = job.id) > 1;

-- I4 the index of a page equals its head revision
SELECT page.item_image_id FROM annotation_pages AS page
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(item.value ->> 'id', item.value ->> 'textGranularity', item.value -> 'body' ->> 'value')
                     ORDER BY item.ordinality) AS listed
    FROM jsonb_array_elements(page.payload::jsonb -> 'items') WITH ORDINALITY AS item
) AS head ON true
LEFT JOIN LATERAL (
    SELECT jsonb_agg(jsonb_build_array(entry.annotation_id, entry.granularity, entry.text) ORDER BY entry.position) AS listed
    FROM annotations AS entry WHERE entry.item_image_id = page.item_image_id
) AS index ON true
WHERE head.listed IS DISTINCT FROM index.listed;

-- I4 an event has one delivery for each webhook that its workspace had by then
SELECT event.id, subscription.id FROM event_outbox AS event
JOIN webhook_subscriptions AS subscription
    ON subscription.workspace_id = event.workspace_id AND subscription.created_at < event.created_at
LEFT JOIN webhook_deliveries AS delivery ON delivery.event_id = event.id AND delivery.subscription_id = subscription.id
WHERE delivery.id IS NULL;

-- I4 a job that failed or was canceled has one event that says so
SELECT job.id, job.status FROM transcription_jobs AS job
WHERE job.status IN ('failed', 'canceled') AND (
    SELECT count(*) FROM event_outbox AS event
    WHERE event.job_id = job.id AND event.event_type = 'dev.scribe.transcription.' || job.status) <> 1;

-- I4 an event of a job says what its row says
SELECT event.id, event.event_type, job.status FROM event_outbox AS event JOIN transcription_jobs AS job ON job.id = event.job_id
WHERE event.event_type <> 'dev.scribe.transcription.' || job.status;

-- I5 the revisions of a page are 1 to head, and the head's payload is the last one's
SELECT page.item_image_id, page.revision FROM annotation_pages AS page
LEFT JOIN annotation_page_revisions AS revision ON revision.item_image_id = page.item_image_id
GROUP BY page.item_image_id, page.revision, page.payload
HAVING count(revision.revision) <> page.revision OR max(revision.revision) IS DISTINCT FROM page.revision
    OR max(revision.payload) FILTER (WHERE revision.revision = page.revision) IS DISTINCT FROM page.payload;

-- I6 a revision of a job names as its input the one before it, so that no person's revision is passed over
SELECT revision.item_image_id, revision.revision FROM annotation_page_revisions AS revision
JOIN transcription_jobs AS job ON job.id = revision.job_id
WHERE revision.author_kind = 'ocr' AND revision.revision <> job.input_revision + 1;

-- I6 a person's revision has one event
SELECT revision.item_image_id, revision.revision FROM annotation_page_revisions AS revision
WHERE revision.author_kind = 'human' AND (
    SELECT count(*) FROM event_outbox AS event
    WHERE event.item_image_id = revision.item_image_id AND event.event_type = 'dev.scribe.annotations.saved'
      AND (event.body::jsonb -> 'data' ->> 'revision')::integer = revision.revision) <> 1;

-- I7 a canceled batch has nothing open and no image without a page, and nothing of it was written later than the cancel
SELECT batch.id FROM ingest_batches AS batch
WHERE batch.status = 'canceled' AND (
    EXISTS (SELECT FROM ingest_batch_files AS file WHERE file.batch_id = batch.id AND file.status IN ('pending', 'processing'))
    OR EXISTS (SELECT FROM transcription_jobs AS job WHERE job.batch_id = batch.id AND job.status IN ('pending', 'running'))
    OR EXISTS (SELECT FROM item_images AS image WHERE image.item_id = batch.item_id
               AND NOT EXISTS (SELECT FROM annotation_pages AS page WHERE page.item_image_id = image.id))
    OR EXISTS (SELECT FROM transcription_jobs AS job JOIN annotation_page_revisions AS revision ON revision.job_id = job.id
               WHERE job.batch_id = batch.id AND revision.created_at > batch.finished_at));

-- a completed file has an image with a page, a job of its batch, and no other file has that image
SELECT file.batch_id, file.sequence FROM ingest_batch_files AS file
LEFT JOIN annotation_pages AS page ON page.item_image_id = file.item_image_id
LEFT JOIN transcription_jobs AS job ON job.item_image_id = file.item_image_id AND job.batch_id = file.batch_id
WHERE file.status = 'completed' AND (page.item_image_id IS NULL OR job.id IS NULL);

-- an image is the page of the file that it came of, and no page is missing before it
SELECT file.batch_id, file.sequence, file.frame FROM ingest_batch_files AS file
LEFT JOIN item_images AS image ON image.id = file.item_image_id
WHERE (image.sequence, image.frame, image.sha256, image.object_key)
      IS DISTINCT FROM (file.sequence, file.frame, file.content_sha256, file.object_key) AND image.id IS NOT NULL
   OR file.frame > 1 AND NOT EXISTS (
      SELECT FROM ingest_batch_files AS before
      WHERE (before.batch_id, before.sequence, before.frame) = (file.batch_id, file.sequence, file.frame - 1));

-- a batch that is over has nothing open
SELECT batch.id FROM ingest_batches AS batch
WHERE batch.status IN ('completed', 'failed') AND (
    EXISTS (SELECT FROM ingest_batch_files AS file WHERE file.batch_id = batch.id AND file.status IN ('pending', 'processing'))
    OR EXISTS (SELECT FROM transcription_jobs AS job WHERE job.batch_id = batch.id AND job.status IN ('pending', 'running')));

-- I13 a notice is attempted three times at most
SELECT id, outcome_facts FROM (SELECT id, outcome_facts FROM flyer_tagging_jobs
                               UNION ALL SELECT id, outcome_facts FROM transcription_jobs) AS job
WHERE (outcome_facts ->> 'notice_attempts')::integer > 3;

-- I13 the digests of a family are an hour apart
WITH digest AS (SELECT DISTINCT 'flyers' AS family, failure_notified_at AS stamp FROM flyer_tagging_jobs
                WHERE outcome_facts ->> 'notice' = 'digest' AND failure_notified_at IS NOT NULL
                UNION SELECT 'jobs', failure_notified_at FROM transcription_jobs
                WHERE outcome_facts ->> 'notice' = 'digest' AND failure_notified_at IS NOT NULL)
SELECT before.family, before.stamp, digest.stamp FROM digest AS before
JOIN digest ON digest.family = before.family AND digest.stamp > before.stamp
WHERE digest.stamp < before.stamp + interval '59 minutes 59 seconds';

-- I14 an outcome is recorded two minutes after the job's last change, or later
SELECT id, updated_at, outcome_recorded_at FROM (SELECT id, updated_at, outcome_recorded_at FROM flyer_tagging_jobs
                                                 UNION ALL SELECT id, updated_at, outcome_recorded_at FROM transcription_jobs) AS job
WHERE outcome_recorded_at >= updated_at AND outcome_recorded_at < updated_at + interval '2 minutes';

-- I16 no facts tell of a person: an address, a URL, an id, a path, or a name of the job's own file
WITH job (id, names, facts) AS (
    SELECT job.id, ARRAY[file.name, job.input_key], job.outcome_facts
    FROM flyer_tagging_jobs AS job LEFT JOIN files AS file ON file.id = job.file_id
    UNION ALL SELECT job.id, ARRAY[image.label, item.name], job.outcome_facts
    FROM transcription_jobs AS job LEFT JOIN item_images AS image ON image.id = job.item_image_id
    LEFT JOIN items AS item ON item.id = image.item_id
), said AS (
    SELECT job.id, job.names, value #>> '{}' AS words
    FROM job, jsonb_path_query(job.facts, 'strict $.**') AS value WHERE jsonb_typeof(value) = 'string'
)
SELECT id, words FROM said
WHERE words ~* '[^[:space:]@]@[[:alpha:]][^[:space:]@]*\.[[:alpha:]]{2}' OR words ~* '[a-z][a-z0-9+.-]*://'
   OR words ~* '[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}' OR words ~* '(?=[0-9]*[a-f])[0-9a-f]{32}' OR words ~ '(^|[[:space:]])(/[[:alpha:]][[:alnum:]_.-]*){2}'
   OR EXISTS (SELECT FROM unnest(names) AS name
              WHERE length(name) >= 4 AND name !~ '^[a-z]{1,12}$'
                AND words ~* ('(^|\W)' || regexp_replace(name, '(\W)', '\\\1', 'g') || '($|\W)'));

-- I16 no lease token where it does not belong
WITH written AS (
    SELECT concat_ws(' ', (SELECT string_agg(body, ' ') FROM event_outbox),
                          (SELECT string_agg(payload, ' ') FROM annotation_page_revisions),
                          (SELECT string_agg(to_jsonb(entry)::text, ' ') FROM operator_audit AS entry),
                          (SELECT string_agg((to_jsonb(job) - 'lease_token')::text, ' ') FROM transcription_jobs AS job)) AS everything)
SELECT attempt.job_id FROM transcription_job_attempts AS attempt, written WHERE strpos(written.everything, attempt.lease_token) > 0;
