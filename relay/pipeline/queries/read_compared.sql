-- The result of the last comparison of a partition.
SELECT verified_at IS NOT NULL, exported_xid::text::bigint, rows, checksum, lake, form, aside
FROM @schema@.queue_message_export WHERE partition = %(partition)s
