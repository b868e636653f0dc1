-- What an exchange's messages held, the newest first; for roles that may read the archive. Bodies are not read: that there is one says
-- enough. Messages that no relay could read are left out: because of one PostgreSQL would return no row at all. So are those that were too
-- large to be sent, whatever became of them: twenty of them would take gigabytes of memory here.
SELECT id::text, routing_key, content::text AS content, body IS NOT NULL AS "binary"
FROM @schema@.queue_message_archive
WHERE exchange = %(exchange)s AND archived_at >= %(since)s AND options <> '{"erased": true}'
    AND (error_code IS NULL OR error_code NOT IN ('content_unprintable', 'body_too_large'))
    AND octet_length(content::text) <= coalesce((SELECT value::bigint FROM @schema@.queue_message_setting WHERE name = 'max_body_bytes'), 16777216)
ORDER BY archived_xid DESC
