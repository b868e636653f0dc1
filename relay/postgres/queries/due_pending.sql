    -- Unordered messages of transactions that were still running when the head passed them.
    SELECT xid, seq, @size@
    FROM @schema@.queue_message
    WHERE xid = ANY(%(pending)s::text::xid8[])
        AND lock_expires_at IS NULL AND available_at IS NULL AND ordering_key IS NULL
        AND exchange <> ALL(%(except)s::text[])
    ORDER BY xid, seq
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
