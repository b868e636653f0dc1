-- Messages go back to the queue, due after their delay, fenced by the lock token. A claim that does not count is given back, and with it
-- the mark of a suspect, locked_by: whether the message kills relays is as open as before.
-- Returns the positions that were not ours any more.
-- Each row is looked up by itself, as in claim.sql.
WITH outcome AS MATERIALIZED (
    SELECT xid, seq, delay, given_back, error
    FROM unnest(%(xids)s::text::xid8[], %(seqs)s::text::bigint[], %(delays)s::float8[], %(given_back)s::int[], %(errors)s::text[])
        AS outcome (xid, seq, delay, given_back, error)
), released AS (
    UPDATE @schema@.queue_message AS message
    SET lock_expires_at = NULL, lock_token = NULL,
        locked_by = CASE WHEN %(suspect)s AND outcome.given_back = 1 THEN message.locked_by END,
        available_at = coalesce(%(now)s, now()) + make_interval(secs => outcome.delay),
        attempts = message.attempts - outcome.given_back,
        last_error = coalesce(outcome.error, message.last_error)
    FROM outcome
    WHERE message.xid = ANY(ARRAY[outcome.xid]) AND message.seq = outcome.seq AND message.lock_token = %(token)s
    RETURNING message.xid, message.seq
)
SELECT outcome.xid::text::bigint, outcome.seq
FROM outcome LEFT JOIN released USING (xid, seq)
WHERE released.seq IS NULL
