-- Hold an exchange, or give a new reason for holding it.
SELECT @schema@.queue_message_pause(%(exchange)s, %(reason)s) AS held
