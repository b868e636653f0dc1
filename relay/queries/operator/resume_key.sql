-- Let an ordering key go on.
SELECT @schema@.queue_message_key_resume(%(key)s) AS freed
