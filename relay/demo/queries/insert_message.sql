-- What any language can do; most applications name only exchange, routing_key and content.
INSERT INTO queue_message (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at)
VALUES (%(id)s, %(exchange)s, %(routing_key)s, %(content)s, %(body)s, %(options)s, %(ordering_key)s,
    now() + make_interval(secs => %(delay)s::float8), now() + make_interval(secs => %(lifetime)s::float8))
RETURNING extract(epoch FROM available_at)::float8
