-- Unacknowledged dead messages after a place, in archive order. A null filter means any; in routing_key a star is any run of characters.
SELECT id, exchange, routing_key, ordering_key, result, error_code, error_detail, attempts, handled_by, replay_of, created_at, archived_at,
    xid::text, seq, archived_xid::text
FROM @schema@.queue_message_dead_list AS dead
WHERE acknowledged_at IS NULL AND archived_xid >= %(archived_xid)s::text::xid8
    AND (archived_xid, xid, seq) > (%(archived_xid)s::text::xid8, %(xid)s::text::xid8, %(seq)s)
    AND (%(exchange)s::text IS NULL OR exchange = %(exchange)s) AND (%(result)s::text IS NULL OR result = %(result)s)
    AND (%(error_code)s::text IS NULL OR error_code = %(error_code)s)
    AND (%(routing_key)s::text IS NULL OR routing_key LIKE
        replace(replace(replace(replace(%(routing_key)s, E'\\', E'\\\\'), '%%', E'\\%%'), '_', E'\\_'), '*', '%%'))
ORDER BY dead.archived_xid, dead.xid, seq
LIMIT %(most)s
