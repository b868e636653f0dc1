SELECT count(*) FROM @schema@.queue_message
