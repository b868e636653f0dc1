-- Take up to so many lanes that are free or whose owner has fallen silent; a new owner means a new epoch. A heartbeat that lies more than a
-- lease ahead was written before the clock was set back: its relay is silent, or has not reported since.
WITH free AS (
    SELECT lane FROM @schema@.queue_message_lane AS lane
    WHERE owner IS NULL OR lease_expires_at <= coalesce(%(now)s, now()) OR NOT EXISTS (
        SELECT FROM @schema@.queue_message_relay AS relay
        WHERE relay.id = lane.owner AND relay.heartbeat_at > coalesce(%(now)s, now()) - make_interval(secs => %(lease_seconds)s)
            AND relay.heartbeat_at < coalesce(%(now)s, now()) + make_interval(secs => %(lease_seconds)s))
    ORDER BY lane
    LIMIT %(most)s
    FOR UPDATE OF lane SKIP LOCKED
)
UPDATE @schema@.queue_message_lane AS lane
SET owner = %(relay_id)s, epoch = lane.epoch + 1, lease_expires_at = 'infinity'
FROM free
WHERE lane.lane = free.lane
RETURNING lane.lane, lane.epoch
