-- The tables that hold the archive's rows.
SELECT part::text AS part FROM @schema@.queue_message_archive_parts() AS part
