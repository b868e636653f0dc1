-- The fair share among the living relays, and the lanes that are still ours with their epochs. Their lease is the relay's own heartbeat:
-- rows that were renewed one by one would leave dead versions behind, which every claim then walks while somebody holds a snapshot.
SELECT
    (SELECT ceil(64.0 / greatest(count(*), 1))::int FROM @schema@.queue_message_relay
        WHERE heartbeat_at > coalesce(%(now)s, now()) - make_interval(secs => %(lease_seconds)s)),
    coalesce(array_agg(lane), '{}'), coalesce(array_agg(epoch), '{}')
FROM @schema@.queue_message_lane
WHERE owner = %(relay_id)s AND lease_expires_at > coalesce(%(now)s, now())
