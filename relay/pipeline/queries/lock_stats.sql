-- One writer at a time; dashboards continue to read.
LOCK TABLE @schema@.queue_message_stats_day IN SHARE ROW EXCLUSIVE MODE
