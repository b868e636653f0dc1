-- Let a schedule go on.
SELECT @schema@.queue_message_schedule_resume(%(name)s) AS freed
