-- The days that the archive has a partition for.
SELECT to_date(substr(c.relname, length('queue_message_archive_') + 1), 'YYYYMMDD')
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'queue_message_archive_daily'::regclass ORDER BY 1
