-- What this very transaction has enqueued, in the order of its INSERTs, as one JSON text that every driver can hand over; also for a login
-- that may not read the queue. The function also marks a test database, because relay.testing makes it and no migration does. Its body is a
-- text, so no migration is hindered by it.
CREATE OR REPLACE FUNCTION @schema@.queue_message_testing() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
SELECT coalesce(json_agg(message ORDER BY message.seq), '[]')::text
FROM (
@messages@
) AS message
WHERE message.xid = pg_current_xact_id_if_assigned()
$body$
