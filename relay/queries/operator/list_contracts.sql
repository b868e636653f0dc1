-- Every version of every message contract, without their schemas.
SELECT exchange, routing_key, version, mode, added_at, added_by, octet_length(schema::text) AS bytes
FROM @schema@.queue_message_contract
ORDER BY exchange, routing_key, version
