-- Advance the time of the lanes of relays that are gone.
UPDATE @schema@.queue_message_lane SET lease_expires_at = lease_expires_at - %(by)s WHERE owner <> ALL(%(spared)s)
