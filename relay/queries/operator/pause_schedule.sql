-- Pause a schedule.
SELECT @schema@.queue_message_schedule_pause(%(name)s) AS held
