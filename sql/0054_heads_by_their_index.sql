-- Heads of ordering keys are found by one look a key along the index of keys, whatever the statistics say.

-- As before; only the index of keys gives the order, so a plan made from the statistics of an empty table reads no more of each key.
CREATE OR REPLACE FUNCTION @schema@.queue_message_waiting_heads() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET jit = off AS $body$
    SELECT near.ordering_key FROM (
        SELECT m.ordering_key, m.lock_expires_at, m.xid, m.seq FROM @schema@.queue_message m
        WHERE m.available_at > now() ORDER BY m.available_at LIMIT 10000) near
    CROSS JOIN LATERAL (
        SELECT e.xid, e.seq FROM @schema@.queue_message e
        WHERE e.ordering_key >= near.ordering_key ORDER BY e.ordering_key, e.xid, e.seq LIMIT 1) head
    WHERE near.ordering_key IS NOT NULL AND near.lock_expires_at IS NULL AND (head.xid, head.seq) = (near.xid, near.seq)
$body$;
