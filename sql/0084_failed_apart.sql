-- What failed and waits for its next attempt has an index of its own. Ten thousand scheduled messages that were due sooner hid it from the status, the
-- gauges and the list of keys, and any producer can insert these. Only a retry writes into the index.
CREATE INDEX queue_message_retry_idx ON @schema@.queue_message (available_at) WHERE last_error IS NOT NULL AND available_at IS NOT NULL;

-- As before, but of the messages that failed it reads the 10,000 that are due next; names of exchanges are sorted, for producers can choose some
-- with equal hashes.
CREATE OR REPLACE FUNCTION @schema@.queue_message_retrying() RETURNS TABLE (error_code text, exchange text, messages bigint, next_at timestamptz)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashagg = off SET jit = off AS $body$
    SELECT split_part(m.last_error, ':', 1), m.exchange, count(*), min(m.available_at)
    FROM (
        SELECT n.last_error, n.exchange, n.available_at, n.lock_expires_at FROM @schema@.queue_message n
        WHERE n.last_error IS NOT NULL AND n.available_at > now() AND n.available_at < 'infinity' ORDER BY n.available_at LIMIT 10000) m
    WHERE m.lock_expires_at IS NULL
    GROUP BY 1, 2 ORDER BY 3 DESC, 1, 2
$body$;

-- As before, and besides the messages that are due next, those that failed and are due next: a key may come twice.
CREATE OR REPLACE FUNCTION @schema@.queue_message_waiting_heads() RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET jit = off AS $body$
    SELECT near.ordering_key FROM (
        (SELECT m.ordering_key, m.lock_expires_at, m.xid, m.seq FROM @schema@.queue_message m
         WHERE m.available_at > now() ORDER BY m.available_at LIMIT 10000)
        UNION ALL
        (SELECT m.ordering_key, m.lock_expires_at, m.xid, m.seq FROM @schema@.queue_message m
         WHERE m.last_error IS NOT NULL AND m.available_at > now() ORDER BY m.available_at LIMIT 10000)) near
    CROSS JOIN LATERAL (
        SELECT e.xid, e.seq FROM @schema@.queue_message e
        WHERE e.ordering_key >= near.ordering_key ORDER BY e.ordering_key, e.xid, e.seq LIMIT 1) head
    WHERE near.ordering_key IS NOT NULL AND near.lock_expires_at IS NULL AND (head.xid, head.seq) = (near.xid, near.seq)
$body$;
