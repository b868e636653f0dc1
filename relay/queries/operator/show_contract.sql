-- The versions of one message contract, or one of them.
SELECT exchange, routing_key, version, mode, added_at, added_by, schema::text AS schema
FROM @schema@.queue_message_contract
WHERE exchange = %(exchange)s AND routing_key = %(routing_key)s AND (%(version)s::integer IS NULL OR version = %(version)s::integer)
ORDER BY version
