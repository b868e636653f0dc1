-- Let every login read what it has enqueued in its transaction.
GRANT EXECUTE ON FUNCTION @schema@.queue_message_testing() TO PUBLIC
