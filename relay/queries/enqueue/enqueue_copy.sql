COPY @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at) FROM STDIN
