-- Of every message contract the newest version in each mode: the others have no effect, and no relay reads them. The oldest come first.
SELECT exchange, routing_key, version, mode, schema::text
FROM (SELECT DISTINCT ON (exchange, routing_key, mode) * FROM @schema@.queue_message_contract ORDER BY exchange, routing_key, mode, version DESC) AS newest
ORDER BY added_at, exchange, routing_key, version
