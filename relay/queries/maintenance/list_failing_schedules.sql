-- Schedules that fail, and why.
SELECT name, why FROM @schema@.queue_message_schedule_failing ORDER BY name LIMIT %(most)s
