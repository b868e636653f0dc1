-- Exchanges that are limited.
SELECT exchange, per_second, limited_at, limited_by, reason FROM @schema@.queue_message_limit ORDER BY exchange
