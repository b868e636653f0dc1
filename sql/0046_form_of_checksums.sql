-- Checksums by another definition say nothing of each other: days that were verified by the first one are compared once more.
ALTER TABLE @schema@.queue_message_export ADD COLUMN form integer NOT NULL DEFAULT 1;
COMMENT ON COLUMN @schema@.queue_message_export.form IS 'Definition of the checksum; the pipeline compares anew what was compared by another.';
