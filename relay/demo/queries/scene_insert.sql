INSERT INTO queue_message (exchange, routing_key, content) VALUES (%(exchange)s, %(routing_key)s, %(content)s) RETURNING id::text
