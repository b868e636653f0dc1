SELECT count(*) FROM queue_message_dead_list WHERE acknowledged_at IS NULL
