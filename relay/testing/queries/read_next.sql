-- Seconds until the next time at which something becomes due; null if nothing waits for a time.
SELECT extract(epoch FROM min(moment) - now())::float8 FROM (
    SELECT min(available_at) AS moment FROM @schema@.queue_message WHERE available_at > now()
    UNION ALL
    SELECT min(lock_expires_at) FROM @schema@.queue_message WHERE lock_expires_at > now() AND locked_by <> ALL(%(spared)s)
    UNION ALL
    SELECT min(due_at) FROM @schema@.queue_message_keyed_row WHERE due_at > now()
    UNION ALL
    SELECT min(next_at) FROM @schema@.queue_message_schedule WHERE next_at > now()
) AS moments
