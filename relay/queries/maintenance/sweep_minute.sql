-- The minute's sweep: one page of the queue, and a note where the database's clock was set.
SELECT coalesce(released, 0), coalesce(archived, 0) FROM @schema@.queue_message_sweep_minute(%(now)s::timestamptz)
