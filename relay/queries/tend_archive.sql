-- Partitions ahead, and what retention drops.
SELECT @schema@.queue_message_ensure_partitions() AS created, (SELECT count(*) FROM @schema@.queue_message_retain() WHERE action = 'dropped') AS dropped
