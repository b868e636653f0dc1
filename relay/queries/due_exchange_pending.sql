    -- Pending transactions of one exchange that has a stream of its own.
    SELECT xid, seq, @size@
    FROM @schema@.queue_message
    WHERE xid = ANY(%(pending)s::text::xid8[])
        AND lock_expires_at IS NULL AND available_at IS NULL AND ordering_key IS NULL
        AND exchange = %(exchange)s
    ORDER BY xid, seq
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
