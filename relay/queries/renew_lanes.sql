-- Keep the lanes that are still ours; returns them with their epochs.
UPDATE @schema@.queue_message_lane
SET lease_expires_at = coalesce(%(now)s, now()) + make_interval(secs => %(lease_seconds)s)
WHERE owner = %(relay_id)s AND lease_expires_at > coalesce(%(now)s, now())
RETURNING lane, epoch
