-- Take a message, take it back, and commit.
SELECT @schema@.queue_message_try()
