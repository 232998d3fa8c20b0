-- Rules choose a context by what is known of an item. They are tried by priority, the highest first, and among equals by id.
-- A rule is a list of 1 to 32 conditions, all of which have to hold; each names a field, an operator and a text.
CREATE FUNCTION scribe_are_conditions(conditions jsonb) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN jsonb_typeof(conditions) = 'array' THEN
        jsonb_array_length(conditions) BETWEEN 1 AND 32 AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(conditions) AS listed (condition)
            WHERE CASE WHEN jsonb_typeof(condition) = 'object' THEN coalesce(
                condition - ARRAY['field', 'operator', 'value'] = '{}'
                AND jsonb_typeof(condition -> 'field') = 'string' AND char_length(condition ->> 'field') BETWEEN 1 AND 255
                AND condition ->> 'operator' IN ('eq', 'neq', 'contains', 'starts_with', 'ends_with')
                AND jsonb_typeof(condition -> 'value') = 'string' AND char_length(condition ->> 'value') <= 1024,
                false) ELSE false END IS NOT TRUE)
        ELSE false END
$$;

CREATE TABLE context_selection_rules (
    id uuid PRIMARY KEY,
    workspace_id uuid NOT NULL,
    context_id uuid NOT NULL,
    priority integer NOT NULL DEFAULT 0,
    conditions jsonb NOT NULL CONSTRAINT context_selection_rules_conditions_form CHECK (scribe_are_conditions(conditions)),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX context_selection_rules_in_order ON context_selection_rules (workspace_id, priority DESC, id);
-- A rule is added and removed, and never changed: what chose a context can be told by its id.
CREATE TRIGGER context_selection_rules_keep BEFORE UPDATE ON context_selection_rules
    FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns('id', 'workspace_id', 'context_id', 'priority', 'conditions', 'created_at');

CREATE TRIGGER contexts_keep BEFORE UPDATE ON contexts
    FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns('id', 'workspace_id', 'created_at');
