-- What this very transaction has enqueued, in the order of its INSERTs, as one JSON text that every driver can hand over.
SELECT CAST(coalesce(json_agg(message ORDER BY message.seq), '[]') AS text)
FROM @schema@.queue_message_testing AS message
WHERE message.xid = pg_current_xact_id_if_assigned()
