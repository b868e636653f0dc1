-- The claim without positions: what is claimable stands in `ready`, whose row goes with the claim. The message is what is locked, so that
-- a message which another session holds keeps its row.
WITH due AS MATERIALIZED (
    SELECT ready.due_at, one.xid, one.seq, one.size
    FROM ready
    CROSS JOIN LATERAL (
        SELECT xid, seq, @size@
        FROM queue_message
        WHERE xid = ANY(ARRAY[ready.xid]) AND seq = ready.seq AND lock_expires_at IS NULL
        FOR UPDATE SKIP LOCKED
    ) AS one
    WHERE ready.due_at <= now() AND ready.exchange <> ALL(%(except)s::text[])
    ORDER BY ready.due_at, ready.xid, ready.seq
    LIMIT %(limit)s
), taken AS (
    DELETE FROM ready USING due
    WHERE ready.due_at = ANY(ARRAY[due.due_at]) AND ready.xid = due.xid AND ready.seq = due.seq
), claimed AS (
    UPDATE queue_message AS message
    SET lock_expires_at = now() + make_interval(secs => %(lock_seconds)s),
        lock_token = %(token)s, locked_by = %(relay_id)s, attempts = message.attempts + 1
    FROM due
    WHERE message.xid = ANY(ARRAY[due.xid]) AND message.seq = due.seq
    RETURNING message.xid, message.seq, @columns@
)
SELECT xid::text::bigint, seq, @names@ FROM claimed ORDER BY claimed.xid, seq
