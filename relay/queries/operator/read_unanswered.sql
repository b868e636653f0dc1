-- Is a dead message still unacknowledged?
SELECT EXISTS (
    SELECT FROM @schema@.queue_message_dead_list
    WHERE id = %(id)s AND xid = %(xid)s::text::xid8 AND seq = %(seq)s AND acknowledged_at IS NULL
) AS unanswered
