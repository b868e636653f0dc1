COPY @schema@.queue_message_keyed (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at, dedup_key, dedup_seconds, coalesce_key, bundle_key) FROM STDIN
