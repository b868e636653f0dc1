-- The archived row of a message; if the message was archived more than once, the last row.
SELECT id, exchange, routing_key, content::text, body, options::text, result, error_code, error_detail, attempts, handled_by, archived_at,
    replay_of
FROM @schema@.queue_message_archive
WHERE id = %(id)s
ORDER BY archived_at DESC, archived_xid DESC
LIMIT 1
