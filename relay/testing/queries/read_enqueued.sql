-- What this transaction has enqueued: nothing in it is a parameter, so that every driver can run it.
SELECT @schema@.queue_message_testing()
