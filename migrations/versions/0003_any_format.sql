-- A file may hold several pages: frame counts them from 1, each an image of its own.
ALTER TABLE item_images
    ADD COLUMN frame integer NOT NULL DEFAULT 1 CONSTRAINT item_images_frame_positive CHECK (frame > 0),
    DROP CONSTRAINT item_images_sequence_unique,
    ADD CONSTRAINT item_images_place_unique UNIQUE (item_id, sequence, frame);
DROP TRIGGER item_images_keep ON item_images;
CREATE TRIGGER item_images_keep BEFORE UPDATE ON item_images FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns(
    'id', 'workspace_id', 'item_id', 'frame', 'object_key', 'sha256', 'storage_bytes', 'media_type', 'width', 'height', 'canvas_uri');


-- Files made from one committed revision. They can be made again, byte for byte, so that nothing forbids their removal.
CREATE TABLE page_exports (
    item_image_id uuid NOT NULL,
    revision integer NOT NULL CONSTRAINT page_exports_revision_positive CHECK (revision > 0),
    format text NOT NULL CONSTRAINT page_exports_format CHECK (format IN ('alto', 'page', 'hocr', 'txt', 'json')),
    workspace_id uuid NOT NULL,
    object_key text NOT NULL CONSTRAINT page_exports_object_key_unique UNIQUE
        CONSTRAINT page_exports_object_key_form
        CHECK (object_key ~ '^[0-9a-f]{64}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.[a-z0-9]{2,5}$'),
    sha256 text NOT NULL,
    size_bytes bigint NOT NULL CONSTRAINT page_exports_size_range CHECK (size_bytes >= 0),
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (item_image_id, revision, format),
    CONSTRAINT page_exports_key_names_bytes CHECK (left(object_key, 64) = sha256)
);
CREATE TRIGGER page_exports_keep BEFORE UPDATE ON page_exports FOR EACH ROW EXECUTE FUNCTION scribe_keep_columns(
    'item_image_id', 'revision', 'format', 'workspace_id', 'object_key', 'sha256', 'size_bytes', 'created_at');


-- Batches that were asked for before keep the context as they froze it.
UPDATE contexts SET segmentation_model = 'kraken-blla-columns'
WHERE workspace_id IS NULL AND name = 'newspaper' AND segmentation_model = 'kraken-blla';
