-- Files that other services tag in place, and their jobs. Those services write these rows: nothing here refuses what they write of
-- a job, if it only has a status and says when it was written. The four outcome columns are Scribe's.
CREATE TABLE files (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id uuid,
    name text,
    size bigint,
    mime_type text,
    input_audit_score numeric,
    input_audit_band text,
    input_audit_already_accessible boolean,
    created_at timestamptz DEFAULT now(),
    updated_at timestamptz DEFAULT now()
);

CREATE TABLE flyer_tagging_jobs (
    id uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    user_id uuid,
    file_id uuid,
    input_key text,
    status text NOT NULL DEFAULT 'queued',
    passed boolean,
    failures jsonb DEFAULT '[]',
    error text,
    preflight jsonb,
    progress jsonb,
    charge_units integer,
    lane text,
    rerouted boolean,
    force boolean,
    flatten boolean,
    source text,
    created_at timestamptz NOT NULL DEFAULT now(),
    updated_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX flyer_tagging_jobs_by_file ON flyer_tagging_jobs (file_id, created_at) WHERE file_id IS NOT NULL;
CREATE INDEX flyer_tagging_jobs_by_input ON flyer_tagging_jobs (md5(input_key), created_at) WHERE input_key IS NOT NULL;


ALTER TABLE flyer_tagging_jobs
    ADD COLUMN outcome_class text,
    ADD COLUMN outcome_facts jsonb,
    ADD COLUMN outcome_recorded_at timestamptz,
    ADD COLUMN failure_notified_at timestamptz;
ALTER TABLE transcription_jobs
    ADD COLUMN outcome_class text,
    ADD COLUMN outcome_facts jsonb,
    ADD COLUMN outcome_recorded_at timestamptz,
    ADD COLUMN failure_notified_at timestamptz;

-- An outcome is there wholly or not at all, is of a known class, and says which of the eight states its notice is in.
CREATE FUNCTION scribe_is_outcome(class text, facts jsonb, recorded_at timestamptz, notified_at timestamptz) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE num_nonnulls(class, facts, recorded_at)
        WHEN 0 THEN notified_at IS NULL
        WHEN 3 THEN coalesce(
            class IN ('success', 'compliance_only', 'fidelity', 'not_taggable', 'pipeline_error', 'cancelled')
            AND jsonb_typeof(facts) = 'object' AND jsonb_typeof(facts -> 'failures') = 'array'
            AND facts ->> 'notice' IN ('none', 'backfill', 'sending', 'pending', 'sent', 'failed', 'digest', 'unconfigured')
            AND (facts ->> 'notice' = 'none' OR class NOT IN ('success', 'cancelled'))
            AND jsonb_typeof(facts -> 'notice_attempts') = 'number' AND facts ->> 'notice_attempts' IN ('0', '1', '2', '3')
            AND (facts ->> 'notice_attempts' = '0') = (facts ->> 'notice_claimed_at' IS NULL)
            AND coalesce(facts ->> 'notice_claimed_at', '2026-01-01T00:00:00.000000Z') ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z$'
            AND (facts ->> 'notice' NOT IN ('sending', 'pending', 'sent') OR facts ->> 'notice_attempts' <> '0')
            AND CASE facts ->> 'notice'
                    WHEN 'sent' THEN notified_at IS NOT NULL WHEN 'digest' THEN true ELSE notified_at IS NULL END,
            false)
        ELSE false
    END
$$;
ALTER TABLE flyer_tagging_jobs ADD CONSTRAINT flyer_tagging_jobs_outcome
    CHECK (scribe_is_outcome(outcome_class, outcome_facts, outcome_recorded_at, failure_notified_at));
ALTER TABLE transcription_jobs
    ADD CONSTRAINT transcription_jobs_outcome
        CHECK (scribe_is_outcome(outcome_class, outcome_facts, outcome_recorded_at, failure_notified_at)),
    ADD CONSTRAINT transcription_jobs_outcome_of_ended CHECK (status NOT IN ('pending', 'running') OR outcome_recorded_at IS NULL);

-- An outcome is recorded once. Of its facts only the notice's change, in the order of the notice's states; a claim is one attempt
-- more; what has been told in a mail of its own stays told.
CREATE FUNCTION scribe_outcome_step() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    notice constant text[] := ARRAY['notice', 'notice_attempts', 'notice_claimed_at'];
    was constant text := OLD.outcome_facts ->> 'notice';
    becomes constant text := NEW.outcome_facts ->> 'notice';
    claims constant integer := (NEW.outcome_facts ->> 'notice_attempts')::integer - (OLD.outcome_facts ->> 'notice_attempts')::integer;
BEGIN
    IF (NEW.outcome_class, NEW.outcome_recorded_at, NEW.outcome_facts - notice)
        IS DISTINCT FROM (OLD.outcome_class, OLD.outcome_recorded_at, OLD.outcome_facts - notice)
    THEN
        RAISE EXCEPTION 'an outcome is recorded once' USING ERRCODE = 'restrict_violation';
    END IF;
    IF NOT (CASE was
            WHEN 'sending' THEN becomes IN ('sending', 'sent', 'pending', 'failed', 'digest', 'unconfigured')
            WHEN 'pending' THEN becomes IN ('pending', 'sending', 'failed', 'digest', 'unconfigured')
            ELSE becomes = was
        END)
        OR claims NOT IN (0, 1) OR (claims = 1 AND becomes <> 'sending') OR (claims = 0 AND was = 'pending' AND becomes = 'sending')
        OR (claims = 0 AND NEW.outcome_facts -> 'notice_claimed_at' IS DISTINCT FROM OLD.outcome_facts -> 'notice_claimed_at')
        OR (was = 'sent' AND NEW.failure_notified_at IS DISTINCT FROM OLD.failure_notified_at)
        OR (was = 'digest' AND num_nonnulls(OLD.failure_notified_at, NEW.failure_notified_at) = 2
            AND NEW.failure_notified_at <> OLD.failure_notified_at)
    THEN
        RAISE EXCEPTION 'a notice does not go from % to % like that', was, becomes USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER flyer_tagging_jobs_recorded BEFORE UPDATE ON flyer_tagging_jobs
    FOR EACH ROW WHEN (OLD.outcome_recorded_at IS NOT NULL) EXECUTE FUNCTION scribe_outcome_step();
CREATE TRIGGER transcription_jobs_recorded BEFORE UPDATE ON transcription_jobs
    FOR EACH ROW WHEN (OLD.outcome_recorded_at IS NOT NULL) EXECUTE FUNCTION scribe_outcome_step();

-- Takes the terminal statuses as arguments. `updated_at` of a row that has ended is when it did: it stays if something of the
-- outcome changes and nothing else. Any other write counts as a change, be it one that changes nothing, such as a sign of life.
CREATE FUNCTION scribe_touch_but_for_outcome() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    outcome constant text[] := ARRAY['outcome_class', 'outcome_facts', 'outcome_recorded_at', 'failure_notified_at', 'updated_at'];
BEGIN
    IF OLD.status = ANY (TG_ARGV)
        AND (NEW.outcome_class, NEW.outcome_facts, NEW.outcome_recorded_at, NEW.failure_notified_at)
            IS DISTINCT FROM (OLD.outcome_class, OLD.outcome_facts, OLD.outcome_recorded_at, OLD.failure_notified_at)
        AND to_jsonb(NEW) - outcome = to_jsonb(OLD) - outcome
    THEN
        NEW.updated_at := OLD.updated_at;
    ELSE
        NEW.updated_at := now();
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER flyer_tagging_jobs_touch BEFORE UPDATE ON flyer_tagging_jobs
    FOR EACH ROW EXECUTE FUNCTION scribe_touch_but_for_outcome('done', 'failed');
DROP TRIGGER transcription_jobs_touch ON transcription_jobs;
CREATE TRIGGER transcription_jobs_touch BEFORE UPDATE ON transcription_jobs
    FOR EACH ROW EXECUTE FUNCTION scribe_touch_but_for_outcome('completed', 'failed', 'canceled', 'superseded');

-- A terminal job is evidence: nothing of it changes any more, but that its outcome is recorded.
CREATE OR REPLACE FUNCTION scribe_job_step() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    outcome constant text[] := ARRAY['outcome_class', 'outcome_facts', 'outcome_recorded_at', 'failure_notified_at', 'updated_at'];
BEGIN
    IF OLD.status IN ('pending', 'running') THEN
        IF NEW.attempt_count < OLD.attempt_count OR (OLD.status = 'pending' AND NEW.status IN ('completed', 'failed')) THEN
            RAISE EXCEPTION 'a job does not go from % to %', OLD.status, NEW.status USING ERRCODE = 'restrict_violation';
        END IF;
    ELSIF to_jsonb(NEW) - outcome <> to_jsonb(OLD) - outcome THEN
        RAISE EXCEPTION 'a job that is % does not change', OLD.status USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

-- What a scan asks for at each tick, so that a tick costs the same however much history there is: rows to record, notices to be
-- sent again, claims of the last hour (their times are written in one form, so that they can be compared as text), waiting rows
-- of the digest, and when the last digest was.
CREATE INDEX flyer_tagging_jobs_unrecorded ON flyer_tagging_jobs (updated_at, id)
    WHERE outcome_recorded_at IS NULL AND status IN ('done', 'failed');
CREATE INDEX flyer_tagging_jobs_undelivered ON flyer_tagging_jobs (id)
    WHERE outcome_facts ->> 'notice' IN ('pending', 'sending');
CREATE INDEX flyer_tagging_jobs_notice_claims ON flyer_tagging_jobs ((outcome_facts ->> 'notice_claimed_at') COLLATE "C")
    WHERE outcome_facts ->> 'notice_claimed_at' IS NOT NULL;
CREATE INDEX flyer_tagging_jobs_digest ON flyer_tagging_jobs (failure_notified_at)
    WHERE outcome_facts ->> 'notice' = 'digest' AND failure_notified_at IS NOT NULL;
CREATE INDEX flyer_tagging_jobs_digest_waiting ON flyer_tagging_jobs (id)
    WHERE outcome_facts ->> 'notice' = 'digest' AND failure_notified_at IS NULL;
CREATE INDEX transcription_jobs_unrecorded ON transcription_jobs (updated_at, id)
    WHERE outcome_recorded_at IS NULL AND status IN ('completed', 'failed', 'canceled', 'superseded');
CREATE INDEX transcription_jobs_undelivered ON transcription_jobs (id)
    WHERE outcome_facts ->> 'notice' IN ('pending', 'sending');
CREATE INDEX transcription_jobs_notice_claims ON transcription_jobs ((outcome_facts ->> 'notice_claimed_at') COLLATE "C")
    WHERE outcome_facts ->> 'notice_claimed_at' IS NOT NULL;
CREATE INDEX transcription_jobs_digest ON transcription_jobs (failure_notified_at)
    WHERE outcome_facts ->> 'notice' = 'digest' AND failure_notified_at IS NOT NULL;
CREATE INDEX transcription_jobs_digest_waiting ON transcription_jobs (id)
    WHERE outcome_facts ->> 'notice' = 'digest' AND failure_notified_at IS NULL;

-- When a family of jobs was scanned first: of what had failed before, nobody is told.
CREATE TABLE outcome_activations (
    family text PRIMARY KEY CONSTRAINT outcome_activations_family CHECK (family IN ('flyer_tagging_jobs', 'transcription_jobs')),
    activated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE TRIGGER outcome_activations_keep BEFORE UPDATE ON outcome_activations
    FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns('family');
