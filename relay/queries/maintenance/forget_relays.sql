-- Relays that have been silent for long, long after their last lock expired, leave the list.
DELETE FROM @schema@.queue_message_relay WHERE heartbeat_at < coalesce(%(now)s, now()) - make_interval(secs => %(forgotten)s)
