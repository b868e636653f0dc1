-- Let a schedule continue.
SELECT @schema@.queue_message_schedule_resume(%(name)s) AS freed
