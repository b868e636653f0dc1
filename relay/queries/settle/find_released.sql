-- Which of these messages a release of ours has returned to the queue although its answer was lost: they are as it left them, or another
-- claim has followed. A sweep would have left its own words, and a higher count for a claim that was returned uncounted. Each row is looked
-- up by itself, as in claim.sql.
WITH left_as AS MATERIALIZED (
    SELECT xid, seq, id, attempts, error
    FROM unnest(%(xids)s::text::xid8[], %(seqs)s::text::bigint[], %(ids)s::uuid[], %(attempts)s::int[], %(errors)s::text[])
        AS left_as (xid, seq, id, attempts, error)
)
SELECT message.xid::text::bigint, message.seq
FROM left_as JOIN @schema@.queue_message AS message ON message.xid = ANY(ARRAY[left_as.xid]) AND message.seq = left_as.seq
WHERE message.lock_token IS DISTINCT FROM %(token)s
    AND message.attempts = left_as.attempts + (message.lock_token IS NOT NULL)::int
    AND message.last_error = left_as.error
UNION ALL
SELECT left_as.xid::text::bigint, left_as.seq
FROM left_as JOIN @schema@.queue_message_archive AS archive ON archive.id = ANY(ARRAY[left_as.id])
WHERE archive.attempts = left_as.attempts + 1 AND archive.claimed_at > to_timestamp(%(claimed_at)s)
