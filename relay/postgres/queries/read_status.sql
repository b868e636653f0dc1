-- The queue in one row. Of what waits under a key at most 100,000 are counted.
SELECT waiting, ready, locked, delayed, counted, oldest_seconds, dead_unacknowledged, blocked_keys, paused_exchanges, limited_exchanges, suspects, relays_alive,
    partition_days_ahead, notification_queue_usage, export_lag_seconds, export_unverified_days, export_differing_partitions,
    (SELECT count(*) FROM (SELECT FROM @schema@.queue_message_keyed_row LIMIT 100000) AS first) AS keyed,
    (SELECT greatest(extract(epoch FROM now() - min(due_at)), 0)::float8 FROM @schema@.queue_message_keyed_row) AS keyed_overdue_seconds,
    (SELECT count(*) FROM @schema@.queue_message_schedule_failing) AS schedules_failing
FROM @schema@.queue_message_status
