-- Messages return to the queue, due after their delay, fenced by the lock token. A claim that does not count as an attempt is subtracted
-- again. The mark of a suspect, locked_by, then stays: whether the message kills relays is as open as before. Returns the positions of the
-- messages that were not returned, and whether another session holds the row: otherwise the message is not ours any more. No row is waited
-- for. No key column changes, so the locks of foreign keys hold nothing up. Each row is looked up by itself, as in claim.sql.
WITH outcome AS MATERIALIZED (
    SELECT xid, seq, delay, given_back, error
    FROM unnest(%(xids)s::text::xid8[], %(seqs)s::text::bigint[], %(delays)s::float8[], %(given_back)s::int[], %(errors)s::text[])
        AS outcome (xid, seq, delay, given_back, error)
), free AS MATERIALIZED (
    SELECT message.xid, message.seq, outcome.delay, outcome.given_back, outcome.error
    FROM outcome JOIN @schema@.queue_message AS message ON message.xid = ANY(ARRAY[outcome.xid]) AND message.seq = outcome.seq
    WHERE message.lock_token = %(token)s
    FOR NO KEY UPDATE OF message SKIP LOCKED
), released AS (
    UPDATE @schema@.queue_message AS message
    SET lock_expires_at = NULL, lock_token = NULL,
        locked_by = CASE WHEN %(suspect)s AND free.given_back = 1 THEN message.locked_by END,
        available_at = coalesce(%(now)s, now()) + make_interval(secs => free.delay),
        attempts = message.attempts - free.given_back,
        last_error = coalesce(free.error, message.last_error)
    FROM free
    WHERE message.xid = ANY(ARRAY[free.xid]) AND message.seq = free.seq
    RETURNING message.xid, message.seq
)
SELECT outcome.xid::text::bigint, outcome.seq, EXISTS (
    SELECT FROM @schema@.queue_message AS message
    WHERE message.xid = ANY(ARRAY[outcome.xid]) AND message.seq = outcome.seq AND message.lock_token = %(token)s
)
FROM outcome LEFT JOIN released USING (xid, seq)
WHERE released.seq IS NULL
