    -- Unordered messages whose wait is over, by queue_message_available_at_idx. What came back from an expired lock is left to due_suspect.
    SELECT xid, seq, @size@
    FROM @schema@.queue_message
    WHERE available_at <= coalesce(%(now)s, now())
        AND lock_expires_at IS NULL AND locked_by IS NULL AND ordering_key IS NULL
        AND exchange <> ALL(%(except)s::text[]) AND (%(only)s::text[] IS NULL OR exchange = ANY(%(only)s::text[]))
    ORDER BY available_at
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
