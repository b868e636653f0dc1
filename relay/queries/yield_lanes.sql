-- Give up what is above the fair share, so that a relay that has just come finds lanes to own.
WITH living AS (
    SELECT greatest(count(*), 1) AS relays FROM @schema@.queue_message_relay
    WHERE heartbeat_at > coalesce(%(now)s, now()) - make_interval(secs => %(lease_seconds)s)
), surplus AS (
    SELECT lane FROM @schema@.queue_message_lane
    WHERE owner = %(relay_id)s
    ORDER BY lane DESC
    LIMIT greatest(%(owned)s - (SELECT ceil(64.0 / relays)::int FROM living), 0)
)
UPDATE @schema@.queue_message_lane AS lane
SET owner = NULL, lease_expires_at = NULL
FROM surplus
WHERE lane.lane = surplus.lane AND lane.owner = %(relay_id)s
RETURNING lane.lane
