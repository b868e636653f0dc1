-- Take up to so many free lanes; a new owner means a new epoch.
WITH free AS (
    SELECT lane FROM @schema@.queue_message_lane
    WHERE owner IS NULL OR lease_expires_at <= coalesce(%(now)s, now())
    ORDER BY lane
    LIMIT %(most)s
    FOR UPDATE SKIP LOCKED
)
UPDATE @schema@.queue_message_lane AS lane
SET owner = %(relay_id)s, epoch = lane.epoch + 1, lease_expires_at = coalesce(%(now)s, now()) + make_interval(secs => %(lease_seconds)s)
FROM free
WHERE lane.lane = free.lane
RETURNING lane.lane, lane.epoch
