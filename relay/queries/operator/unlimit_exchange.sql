-- Lift the limit of an exchange.
SELECT @schema@.queue_message_unlimit(%(exchange)s) AS lifted
