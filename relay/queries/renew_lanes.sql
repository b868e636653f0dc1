-- Keep the lanes that are still ours; returns the fair share among the living relays, and our lanes with their epochs.
WITH renewed AS (
    UPDATE @schema@.queue_message_lane
    SET lease_expires_at = coalesce(%(now)s, now()) + make_interval(secs => %(lease_seconds)s)
    WHERE owner = %(relay_id)s AND lease_expires_at > coalesce(%(now)s, now())
    RETURNING lane, epoch
), living AS (
    SELECT count(*) AS relays FROM @schema@.queue_message_relay
    WHERE heartbeat_at > coalesce(%(now)s, now()) - make_interval(secs => %(lease_seconds)s)
)
SELECT (SELECT ceil(64.0 / greatest(relays, 1))::int FROM living), coalesce(array_agg(lane), '{}'), coalesce(array_agg(epoch), '{}')
FROM renewed
