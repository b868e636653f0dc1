    -- Unordered messages above the head, by the primary key: dead entries on the left are never walked again.
    SELECT xid, seq, @size@
    FROM @schema@.queue_message
    WHERE (xid, seq) > (%(head_xid)s::text::xid8, %(head_seq)s)
        AND lock_expires_at IS NULL AND available_at IS NULL AND ordering_key IS NULL
        AND exchange <> ALL(%(except)s::text[])
    ORDER BY xid, seq
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
