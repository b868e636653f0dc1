-- The fair share among the living relays that reach their broker, and the lanes that are still ours with their epochs. A relay that does
-- not reach its broker gets no share while another does. The lease is the relay's own heartbeat: rows that were renewed one by one would
-- leave dead versions behind, which every claim then walks while a session holds a snapshot.
WITH living AS (
    SELECT id = %(relay_id)s AS ours, coalesce(state ->> 'broker' = 'up', false) AS able FROM @schema@.queue_message_relay
    WHERE heartbeat_at > coalesce(%(now)s, now()) - make_interval(secs => %(lease_seconds)s)
        AND heartbeat_at < coalesce(%(now)s, now()) + make_interval(secs => %(lease_seconds)s)
)
SELECT
    (SELECT CASE
        WHEN bool_or(able) AND NOT bool_or(able AND ours) THEN 0
        ELSE ceil(64.0 / greatest(coalesce(nullif(count(*) FILTER (WHERE able), 0), count(*)), 1))::int END
     FROM living),
    coalesce(array_agg(lane), '{}'), coalesce(array_agg(epoch), '{}')
FROM @schema@.queue_message_lane
WHERE owner = %(relay_id)s AND lease_expires_at > coalesce(%(now)s, now())
