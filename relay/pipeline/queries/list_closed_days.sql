-- Days of the archive that are over in UTC, oldest first, with the result of their last verification.
SELECT c.relname::text, to_date(right(c.relname, 8), 'YYYYMMDD') AS day, e.verified_at IS NOT NULL AS verified,
    e.exported_xid::text::bigint, e.rows, e.checksum, e.lake, e.form
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
LEFT JOIN @schema@.queue_message_export e ON e.partition = c.relname
WHERE i.inhparent = format('%%I.queue_message_archive_daily', %(schema)s::text)::regclass AND c.relname ~ '_[0-9]{8}$'
    AND to_date(right(c.relname, 8), 'YYYYMMDD') < (coalesce(%(now)s, now()) AT TIME ZONE 'UTC')::date
ORDER BY c.relname
