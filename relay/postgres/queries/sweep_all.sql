-- Free every expired lock, also those set by hand or by other programs.
SELECT coalesce(released, 0), coalesce(archived, 0) FROM @schema@.queue_message_sweep_minute(%(now)s::timestamptz)
