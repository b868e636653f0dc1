    -- Messages whose waits ended after a place, in the order of these ends, by queue_message_available_at_idx. Messages of one time are in
    -- claim order: an application may insert many that are due at the same moment, and each page continues behind the last.
    SELECT row_number() OVER () AS place, one.*
    FROM (
        SELECT xid, seq, exchange, ordering_key, lane, attempts, available_at, lock_expires_at, locked_by
        FROM @schema@.queue_message
        WHERE (available_at, xid, seq) > (%(after)s::text::timestamptz, %(from_xid)s::text::xid8, %(from_seq)s::bigint)
            AND available_at <= coalesce(%(now)s, now())
        ORDER BY available_at, xid, seq
        LIMIT %(walk)s
    ) AS one
