-- When the lake was seen before, the server's time, and within how many days each file is read.
SELECT (SELECT seen_at FROM @schema@.queue_message_export_position), clock_timestamp(),
    @schema@.queue_message_setting_value('lake_reread_days')::integer
