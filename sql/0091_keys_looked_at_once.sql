-- As before, but each key is looked at once. Ten thousand messages of one key made as many looks at its head, and each of them passed whatever of the key
-- an open snapshot kept: with 20,000 settled ones a look took 14 seconds, and that of the gauges held up the folds.
CREATE OR REPLACE FUNCTION @schema@.queue_message_waiting_heads() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashagg = off SET enable_hashjoin = off
    SET enable_mergejoin = off SET jit = off AS $body$
    SELECT near.ordering_key FROM (
        SELECT DISTINCT due.ordering_key FROM (
            (SELECT m.ordering_key FROM @schema@.queue_message m WHERE m.available_at > now() ORDER BY m.available_at LIMIT 10000)
            UNION ALL
            (SELECT m.ordering_key FROM @schema@.queue_message m
             WHERE m.last_error IS NOT NULL AND m.available_at > now() ORDER BY m.available_at LIMIT 10000)) due
        -- Ordered, so that it is sorted, although both sorts and hashes are forbidden: producers can choose keys with equal hashes.
        WHERE due.ordering_key IS NOT NULL ORDER BY due.ordering_key) near
    CROSS JOIN LATERAL (
        SELECT e.available_at, e.lock_expires_at FROM @schema@.queue_message e
        WHERE e.ordering_key >= near.ordering_key ORDER BY e.ordering_key, e.xid, e.seq LIMIT 1) head
    WHERE head.available_at > now() AND head.lock_expires_at IS NULL
$body$;
