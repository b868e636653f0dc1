-- What an exchange's messages held, the newest first; for roles that may read the archive. No body: that there is one says enough.
SELECT id::text, routing_key, content::text AS content, body IS NOT NULL AS "binary"
FROM @schema@.queue_message_archive
WHERE exchange = %(exchange)s AND archived_at >= %(since)s
ORDER BY archived_xid DESC
