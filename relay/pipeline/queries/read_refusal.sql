-- Why PostgreSQL refused a message, in the words that every replay uses; null if the error is not the message's fault.
SELECT @schema@.queue_message_refusal(%(state)s, %(words)s)
