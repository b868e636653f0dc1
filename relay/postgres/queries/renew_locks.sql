-- Move the locks of messages in hand ahead, fenced by the lock token; returns how many are still ours.
-- Each row is looked up by itself, as in claim.sql.
WITH renewed AS (
    UPDATE @schema@.queue_message AS message
    SET lock_expires_at = coalesce(%(now)s, now()) + make_interval(secs => %(lock_seconds)s)
    FROM unnest(%(xids)s::text::xid8[], %(seqs)s::text::bigint[]) AS held (xid, seq)
    WHERE message.xid = ANY(ARRAY[held.xid]) AND message.seq = held.seq AND message.lock_token = %(token)s
    RETURNING 1
)
SELECT count(*) FROM renewed
