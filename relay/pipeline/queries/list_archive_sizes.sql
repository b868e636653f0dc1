-- How many bytes each partition of the archive takes, and about how many rows it has.
SELECT day, rows, bytes FROM @schema@.queue_message_archive_size ORDER BY day DESC NULLS FIRST
