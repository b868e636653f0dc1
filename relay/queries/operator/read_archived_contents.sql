-- What an exchange's messages held, the newest first; for roles that may read the archive. No body: that there is one says enough. What no relay
-- could read is left out: PostgreSQL cannot hand it out, in place of all rows.
SELECT id::text, routing_key, content::text AS content, body IS NOT NULL AS "binary"
FROM @schema@.queue_message_archive
WHERE exchange = %(exchange)s AND archived_at >= %(since)s AND error_code IS DISTINCT FROM 'content_unprintable'
ORDER BY archived_xid DESC
