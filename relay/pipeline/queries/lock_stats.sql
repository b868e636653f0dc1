-- One writer at a time; dashboards go on reading.
LOCK TABLE @schema@.queue_message_stats_day IN SHARE ROW EXCLUSIVE MODE
