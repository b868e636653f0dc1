-- Keep the lanes that are still ours; returns the fair share among the living relays, and our lanes with their epochs.
-- Statements that lock several lanes do so in their order, or they would deadlock.
WITH ours AS MATERIALIZED (
    SELECT lane FROM @schema@.queue_message_lane
    WHERE owner = %(relay_id)s AND lease_expires_at > coalesce(%(now)s, now())
    ORDER BY lane
    FOR UPDATE
), renewed AS (
    UPDATE @schema@.queue_message_lane AS lane
    SET lease_expires_at = coalesce(%(now)s, now()) + make_interval(secs => %(lease_seconds)s)
    FROM ours
    WHERE lane.lane = ours.lane
    RETURNING lane.lane, lane.epoch
), living AS (
    SELECT count(*) AS relays FROM @schema@.queue_message_relay
    WHERE heartbeat_at > coalesce(%(now)s, now()) - make_interval(secs => %(lease_seconds)s)
)
SELECT (SELECT ceil(64.0 / greatest(relays, 1))::int FROM living), coalesce(array_agg(lane), '{}'), coalesce(array_agg(epoch), '{}')
FROM renewed
