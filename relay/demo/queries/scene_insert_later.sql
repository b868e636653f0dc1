INSERT INTO queue_message (exchange, routing_key, content, available_at)
VALUES (%(exchange)s, %(routing_key)s, %(content)s, now() + interval '1 hour')
RETURNING id::text
