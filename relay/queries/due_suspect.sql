    -- Messages that came back from an expired lock (locked_by still names who held it), by queue_message_available_at_idx. After its second
    -- lost lock a message is claimed alone, so that one which kills relays takes no neighbour with it; after the first, when it was most
    -- likely a bystander, in small groups. Of an ordering key only the head, and only in an owned lane.
    WITH back AS MATERIALIZED (
        SELECT xid, seq, @size@, attempts <= %(trusted)s AS once
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
        LIMIT %(limit)s
        FOR UPDATE OF message SKIP LOCKED
    )
    SELECT xid, seq, size
    FROM (SELECT xid, seq, size, once, row_number() OVER (ORDER BY once DESC) AS place FROM back) AS ranked
    WHERE once OR place = 1
