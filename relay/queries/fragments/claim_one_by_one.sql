tried AS MATERIALIZED (
    -- Past what a trigger refuses, which a claim of all of them would not survive.
    SELECT chosen.*, one.*
    FROM chosen CROSS JOIN LATERAL @schema@.queue_message_claim_one(
        chosen.xid, chosen.seq, coalesce(%(now)s, now()) + make_interval(secs => %(lock_seconds)s), %(token)s, %(relay_id)s) AS one
), claimed AS (
    -- These are the rows as they were before this statement; a claim changes none of what is read of them.
    SELECT @columns@
    FROM tried AS chosen
    JOIN @schema@.queue_message AS message ON message.xid = ANY(ARRAY[chosen.xid]) AND message.seq = chosen.seq
    WHERE chosen.state IS NULL
)
