-- The newest dead messages that are not acknowledged, without content and options.
SELECT d.id::text, d.exchange, d.routing_key, d.ordering_key, d.result, d.error_code, d.error_detail, d.attempts, d.archived_at
FROM @schema@.queue_message_dead d
WHERE NOT EXISTS (SELECT FROM @schema@.queue_message_dead_ack a WHERE (a.xid, a.seq) = (d.xid, d.seq))
ORDER BY d.archived_at DESC, d.xid DESC, d.seq DESC
LIMIT %(limit)s
