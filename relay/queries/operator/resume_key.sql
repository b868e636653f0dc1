-- Let an ordering key continue.
SELECT @schema@.queue_message_key_resume(%(key)s) AS freed
