-- Exchanges and routing keys of the messages settled last.
SELECT exchange, routing_key, messages FROM @schema@.queue_message_recent_key ORDER BY exchange, routing_key
