-- Why PostgreSQL refused a message, in the words that every replay has for it; null where the error is none of the message's own.
SELECT @schema@.queue_message_refusal(%(state)s, %(words)s)
