-- Do what becomes due without a claim, by the functions that relays and pg_cron call: for expired locks, ticks of schedules, and keys.
SELECT (SELECT released FROM @schema@.queue_message_sweep_minute()), (SELECT inserted FROM @schema@.queue_message_run_schedules()),
    (SELECT folded FROM @schema@.queue_message_fold())
