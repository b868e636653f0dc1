    -- Unordered messages that were never claimed, by the primary key: dead entries below the head are never walked again.
    SELECT one.xid, one.seq, one.size
    FROM range
    CROSS JOIN LATERAL (
        SELECT xid, seq, @size@
        FROM @schema@.queue_message
        WHERE (xid, seq) > (range.from_xid, range.from_seq) AND (xid, seq) < (range.to_xid, range.to_seq)
            AND lock_expires_at IS NULL AND available_at IS NULL AND ordering_key IS NULL
            AND exchange <> ALL(%(except)s::text[]) AND (%(only)s::text[] IS NULL OR exchange IN (SELECT name FROM unnest(%(only)s::text[]) AS known (name)))
        ORDER BY xid, seq
        LIMIT %(limit)s
        FOR UPDATE SKIP LOCKED
    ) AS one
    LIMIT %(limit)s
