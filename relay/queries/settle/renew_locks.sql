-- Extend the locks of messages in flight, fenced by the lock token. Returns the positions of the messages whose locks were not extended,
-- and whether another session holds the row: otherwise the message is not ours any more. No row is waited for. No key column changes, so
-- the locks of foreign keys hold nothing up. Each row is looked up by itself, as in claim.sql.
WITH held AS MATERIALIZED (
    SELECT xid, seq FROM unnest(%(xids)s::text::xid8[], %(seqs)s::text::bigint[]) AS held (xid, seq)
), free AS MATERIALIZED (
    SELECT message.xid, message.seq
    FROM held JOIN @schema@.queue_message AS message ON message.xid = ANY(ARRAY[held.xid]) AND message.seq = held.seq
    WHERE message.lock_token = %(token)s
    FOR NO KEY UPDATE OF message SKIP LOCKED
), renewed AS (
    UPDATE @schema@.queue_message AS message
    SET lock_expires_at = coalesce(%(now)s, now()) + make_interval(secs => %(lock_seconds)s)
    FROM free
    WHERE message.xid = ANY(ARRAY[free.xid]) AND message.seq = free.seq
    RETURNING message.xid, message.seq
)
SELECT held.xid::text::bigint, held.seq, EXISTS (
    SELECT FROM @schema@.queue_message AS message
    WHERE message.xid = ANY(ARRAY[held.xid]) AND message.seq = held.seq AND message.lock_token = %(token)s
)
FROM held LEFT JOIN renewed USING (xid, seq)
WHERE renewed.seq IS NULL
