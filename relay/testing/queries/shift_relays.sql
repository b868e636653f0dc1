-- Advance the time of relays that are gone, so that no test waits for what they held.
UPDATE @schema@.queue_message_relay SET heartbeat_at = heartbeat_at - %(by)s WHERE id <> ALL(%(spared)s)
