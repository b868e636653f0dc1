-- The queue in one row. Of the messages that wait under a key at most 100,000 are counted.
SELECT waiting, ready, locked, delayed, scheduled, retrying, counted, oldest_seconds, dead_unacknowledged, blocked_keys, paused_exchanges,
    limited_exchanges, suspects, relays_alive, partition_days_ahead, notification_queue_usage, export_lag_seconds, export_unverified_days, export_differing_partitions,
    (SELECT count(*) FROM (SELECT FROM @schema@.queue_message_keyed_row LIMIT 100000) AS first) AS keyed,
    keyed_overdue_seconds, schedules_overdue_seconds, retention_overdue_seconds, sweep_overdue_seconds, lake_overdue_seconds,
    (SELECT count(*) FROM @schema@.queue_message_schedule_failing) AS schedules_failing
FROM @schema@.queue_message_status, @schema@.queue_message_overdue
