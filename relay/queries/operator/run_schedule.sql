-- Insert a schedule's message now.
SELECT @schema@.queue_message_schedule_run_now(%(name)s) AS id
