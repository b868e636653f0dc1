-- A message whose dedup_key is known returns no row.
INSERT INTO queue_message_keyed (exchange, routing_key, content, dedup_key, coalesce_key, bundle_key)
VALUES (%(exchange)s, %(routing_key)s, %(content)s, %(dedup_key)s, %(coalesce_key)s, %(bundle_key)s)
RETURNING id::text
