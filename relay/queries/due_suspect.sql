    -- One message that came back from an expired lock (locked_by still names who held it): alone, so that a message
    -- which kills relays takes no neighbour with it. Of an ordering key only the head, and only in an owned lane.
    SELECT xid, seq, pg_column_size(content) + coalesce(pg_column_size(body), 0) AS size
    FROM @schema@.queue_message AS message
    WHERE available_at <= coalesce(%(now)s, now())
        AND lock_expires_at IS NULL AND locked_by IS NOT NULL
        AND exchange <> ALL(%(except)s::text[])
        AND (ordering_key IS NULL OR (
            EXISTS (SELECT FROM @schema@.queue_message_lane AS lane
                WHERE lane.lane = message.lane AND lane.owner = %(relay_id)s AND lane.lease_expires_at > coalesce(%(now)s, now()))
            AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold AS hold WHERE hold.ordering_key = message.ordering_key)
            AND NOT EXISTS (SELECT FROM @schema@.queue_message AS earlier
                WHERE earlier.ordering_key = message.ordering_key AND (earlier.xid, earlier.seq) < (message.xid, message.seq))))
    ORDER BY available_at
    LIMIT 1
    FOR UPDATE OF message SKIP LOCKED
