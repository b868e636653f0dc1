tried AS MATERIALIZED (
    -- Passes over messages that a trigger refuses, with which a claim of all messages at once would fail.
    SELECT chosen.*, one.*
    FROM chosen CROSS JOIN LATERAL @schema@.queue_message_claim_one(
        chosen.xid, chosen.seq, coalesce(%(now)s, now()) + make_interval(secs => %(lock_seconds)s), %(token)s, %(relay_id)s) AS one
), claimed AS (
    -- These are the rows as they were before this statement; a claim changes none of the columns that are read here.
    SELECT @columns@
    FROM tried AS chosen
    JOIN @schema@.queue_message AS message ON message.xid = ANY(ARRAY[chosen.xid]) AND message.seq = chosen.seq
    WHERE chosen.state IS NULL
)
