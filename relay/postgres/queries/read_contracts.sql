-- Every version of every message contract.
SELECT exchange, routing_key, version, mode, schema::text FROM @schema@.queue_message_contract ORDER BY exchange, routing_key, version
