-- Why messages wait for another attempt, by code and exchange, the most first; and in how many seconds the next one is due.
SELECT error_code, exchange, messages, extract(epoch FROM next_at - now())::float8 AS next_seconds
FROM @schema@.queue_message_retrying() LIMIT %(most)s
