claimed AS (
    UPDATE @schema@.queue_message AS message
    SET lock_expires_at = coalesce(%(now)s, now()) + make_interval(secs => %(lock_seconds)s),
        lock_token = %(token)s, locked_by = %(relay_id)s, attempts = message.attempts + 1
    FROM chosen
    WHERE message.xid = ANY(ARRAY[chosen.xid]) AND message.seq = chosen.seq
    RETURNING @columns@
)
