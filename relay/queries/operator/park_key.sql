-- Hold an ordering key, or give a new reason for holding it.
SELECT @schema@.queue_message_key_park(%(key)s, %(reason)s) AS held
