-- Let an exchange go on.
SELECT @schema@.queue_message_resume(%(exchange)s) AS freed
