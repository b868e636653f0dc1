-- Hold an ordering key.
SELECT @schema@.queue_message_key_park(%(key)s, %(reason)s) AS held
