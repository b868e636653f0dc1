-- The claim in a ring of partitions, by the partial index of what is claimable, merged over the partitions.
WITH due AS MATERIALIZED (
    SELECT slot, xid, seq, @size@
    FROM ring
    WHERE lock_expires_at IS NULL AND ordering_key IS NULL AND @due@ AND exchange <> ALL(%(except)s::text[])
    ORDER BY @order@
    LIMIT %(limit)s
    FOR UPDATE SKIP LOCKED
), claimed AS (
    UPDATE ring AS message
    SET lock_expires_at = now() + make_interval(secs => %(lock_seconds)s),
        lock_token = %(token)s, locked_by = %(relay_id)s, attempts = message.attempts + 1
    FROM due
    WHERE message.slot = due.slot AND message.xid = ANY(ARRAY[due.xid]) AND message.seq = due.seq
    RETURNING message.xid, message.seq, @columns@
)
SELECT xid::text::bigint, seq, @names@ FROM claimed ORDER BY claimed.xid, seq
