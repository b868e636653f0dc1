-- Take free lanes up to this relay's fair share among the living; a new owner means a new epoch.
WITH living AS (
    SELECT greatest(count(*), 1) AS relays FROM @schema@.queue_message_relay
    WHERE heartbeat_at > coalesce(%(now)s, now()) - make_interval(secs => %(lease_seconds)s)
), free AS (
    SELECT lane FROM @schema@.queue_message_lane
    WHERE owner IS NULL OR lease_expires_at <= coalesce(%(now)s, now())
    ORDER BY lane
    LIMIT greatest((SELECT ceil(64.0 / relays)::int FROM living) - %(owned)s, 0)
    FOR UPDATE SKIP LOCKED
)
UPDATE @schema@.queue_message_lane AS lane
SET owner = %(relay_id)s, epoch = lane.epoch + 1, lease_expires_at = coalesce(%(now)s, now()) + make_interval(secs => %(lease_seconds)s)
FROM free
WHERE lane.lane = free.lane
RETURNING lane.lane, lane.epoch
