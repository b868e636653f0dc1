-- Make the partitions of the archive from yesterday on.
SELECT @schema@.queue_message_ensure_partitions()
