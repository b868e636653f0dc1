-- Give up so many lanes, so that a relay that has just come finds some to own.
WITH surplus AS (
    SELECT lane FROM @schema@.queue_message_lane
    WHERE owner = %(relay_id)s
    ORDER BY lane DESC
    LIMIT %(most)s
)
UPDATE @schema@.queue_message_lane AS lane
SET owner = NULL, lease_expires_at = NULL
FROM surplus
WHERE lane.lane = surplus.lane AND lane.owner = %(relay_id)s
RETURNING lane.lane
