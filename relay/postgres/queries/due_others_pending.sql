    -- Pending transactions of the main stream, each from where the last look at it came to. The lateral look-up and its OFFSET keep this a
    -- walk from there on.
    SELECT message.xid, message.seq, message.wanted
    FROM unnest(%(pending)s::text::xid8[], %(reached)s::text::bigint[]) AS late (xid, seq)
    CROSS JOIN LATERAL (
        SELECT xid, seq, lock_expires_at IS NULL AND available_at IS NULL AND ordering_key IS NULL AND exchange <> ALL(%(except)s::text[]) AS wanted
        FROM @schema@.queue_message
        WHERE xid = late.xid AND seq > coalesce(late.seq, 0)
        ORDER BY xid, seq
        OFFSET 0
    ) AS message
    LIMIT %(walk)s
