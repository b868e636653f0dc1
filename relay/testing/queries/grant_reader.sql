-- A login that enqueues in a test may look.
GRANT EXECUTE ON FUNCTION @schema@.queue_message_testing() TO PUBLIC
