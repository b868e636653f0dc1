-- Let time go on for relays that are gone, so that nobody waits for what they held.
UPDATE @schema@.queue_message_relay SET heartbeat_at = heartbeat_at - %(by)s WHERE id <> ALL(%(spared)s)
