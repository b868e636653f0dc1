-- Unacknowledged dead messages after a place, in archive order.
SELECT id, exchange, routing_key, ordering_key, result, error_code, error_detail, attempts, handled_by, replay_of, created_at, archived_at,
    xid::text, seq, archived_xid::text
FROM @schema@.queue_message_dead_list AS dead
WHERE acknowledged_at IS NULL AND archived_xid >= %(archived_xid)s::text::xid8
    AND (archived_xid, xid, seq) > (%(archived_xid)s::text::xid8, %(xid)s::text::xid8, %(seq)s)
ORDER BY dead.archived_xid, dead.xid, seq
LIMIT %(most)s
