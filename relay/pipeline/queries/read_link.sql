-- What PostgreSQL knows of its lake; no row before the first export.
SELECT lake, epoch, pending, exported_xid::text::bigint, coalesce(version, 0) FROM @schema@.queue_message_export_position
