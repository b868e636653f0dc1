    -- Messages that somebody names, if they are ready, by queue_message_id_key. Messages of an ordering key are left out: they have their
    -- turn.
    SELECT xid, seq, @size@
    FROM @schema@.queue_message
    WHERE id = ANY(%(ids)s::text[]::uuid[])
        AND lock_expires_at IS NULL AND (available_at IS NULL OR available_at <= coalesce(%(now)s, now())) AND ordering_key IS NULL
    ORDER BY xid, seq
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
