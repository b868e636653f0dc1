    -- Messages whose waits ended after a time, in the order of these ends, by queue_message_available_at_idx.
    SELECT row_number() OVER () AS place, one.*
    FROM (
        SELECT xid, seq, exchange, ordering_key, lane, attempts, available_at, lock_expires_at, locked_by
        FROM @schema@.queue_message
        WHERE available_at > %(after)s::text::timestamptz AND available_at <= coalesce(%(now)s, now())
        ORDER BY available_at
        LIMIT %(walk)s
    ) AS one
