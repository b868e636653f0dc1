-- Why messages wait for another attempt, by code and exchange, the most first; in how many seconds the next one is due; and how many such
-- reasons and messages there are in all.
SELECT error_code, exchange, messages, extract(epoch FROM next_at - now())::float8 AS next_seconds,
    count(*) OVER () AS all_reasons, sum(messages) OVER ()::bigint AS all_messages
FROM @schema@.queue_message_retrying() LIMIT %(most)s
