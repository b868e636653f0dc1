    -- Those of the messages walked that are wanted, looked up one by one as long as there is room: the walk goes no further than that.
    SELECT message.xid, message.seq, message.size
    FROM walked
    CROSS JOIN LATERAL (
        SELECT xid, seq, @size@
        FROM @schema@.queue_message
        WHERE xid = ANY(ARRAY[walked.xid]) AND seq = walked.seq AND lock_expires_at IS NULL AND available_at IS NULL
        FOR UPDATE SKIP LOCKED
    ) AS message
    WHERE walked.wanted
    LIMIT %(limit)s
