-- Remove a schedule.
SELECT @schema@.queue_message_schedule_remove(%(name)s) AS removed
