-- Dead messages, the newest first. A null filter means any. Names are longer than 255 bytes only where triggers were bypassed.
SELECT id, left(exchange, 256) AS exchange, left(routing_key, 256) AS routing_key, result, error_code, error_detail, attempts, handled_by, created_at, archived_at,
    acknowledged_at, acknowledged_by, note
FROM @schema@.queue_message_dead_list
WHERE (%(acknowledged)s OR acknowledged_at IS NULL)
    AND (%(exchange)s::text IS NULL OR exchange = %(exchange)s) AND (%(result)s::text IS NULL OR result = %(result)s)
    AND (%(code)s::text IS NULL OR error_code = %(code)s) AND (%(routing_key)s::text IS NULL OR routing_key = %(routing_key)s)
ORDER BY archived_xid DESC, xid DESC, seq DESC
LIMIT %(most)s
