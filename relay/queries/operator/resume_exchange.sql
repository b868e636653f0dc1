-- Let an exchange continue.
SELECT @schema@.queue_message_resume(%(exchange)s) AS freed
