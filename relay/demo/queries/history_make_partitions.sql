-- Partitions from a day before that time to one after.
SELECT queue_message_ensure_partitions(1, %(day)s)
