-- A dead message, each time that it became dead, the newest first.
SELECT id, exchange, routing_key, ordering_key, result, error_code, error_detail, attempts, handled_by, replay_of, created_at, archived_at,
    acknowledged_at, acknowledged_by, note, xid::text, seq
FROM @schema@.queue_message_dead_list AS dead
WHERE id = %(id)s
ORDER BY dead.archived_xid DESC, dead.xid DESC
