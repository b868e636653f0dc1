-- Hold an exchange.
SELECT @schema@.queue_message_pause(%(exchange)s, %(reason)s) AS held
