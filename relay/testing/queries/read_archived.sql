-- What became of a message; of one that was sent more than once, the last.
SELECT id, exchange, routing_key, content::text, body, options::text, result, error_code, error_detail, attempts, handled_by, archived_at,
    replay_of
FROM @schema@.queue_message_archive
WHERE id = %(id)s
ORDER BY archived_at DESC, archived_xid DESC
LIMIT 1
