-- As before, but where the 10,000 messages behind a relay's place are all scheduled or locked, the age is that of the last one seen: a message that
-- could go out may come after it, and is no older. Before, 10,001 scheduled messages of any producer made the age of all others 0.
CREATE OR REPLACE FUNCTION @schema@.queue_message_oldest() RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
    WITH place AS MATERIALIZED (SELECT p.xid, p.seq FROM @schema@.queue_message_claim_places() p)
    SELECT least(
        (SELECT min(first.created_at) FROM (TABLE place UNION ALL SELECT '0', 0 WHERE NOT EXISTS (TABLE place)) AS begun
         CROSS JOIN LATERAL (
            SELECT coalesce((
                SELECT near.created_at FROM (
                    SELECT m.created_at, m.lock_expires_at, m.available_at FROM @schema@.queue_message m
                    WHERE (m.xid, m.seq) >= (begun.xid, begun.seq) ORDER BY m.xid, m.seq LIMIT 10000) near
                WHERE near.lock_expires_at IS NULL AND near.available_at IS NULL LIMIT 1), (
                SELECT m.created_at FROM @schema@.queue_message m
                WHERE (m.xid, m.seq) >= (begun.xid, begun.seq) AND EXISTS (TABLE place) ORDER BY m.xid, m.seq OFFSET 9999 LIMIT 1)) AS created_at) first),
        (SELECT min(near.created_at) FROM (
            SELECT m.created_at, m.lock_expires_at, m.available_at FROM @schema@.queue_message m
            WHERE NOT EXISTS (TABLE place) ORDER BY m.xid DESC, m.seq DESC LIMIT 10000) near
         WHERE near.lock_expires_at IS NULL AND near.available_at IS NULL),
        (SELECT near.created_at FROM (
            SELECT m.created_at, m.lock_expires_at, m.available_at FROM @schema@.queue_message m
            WHERE m.ordering_key IS NOT NULL ORDER BY m.xid, m.seq, m.lane LIMIT 10000) near
         WHERE near.lock_expires_at IS NULL AND near.available_at IS NULL LIMIT 1),
        (SELECT min(greatest(near.available_at, near.created_at)) FROM (
            SELECT m.available_at, m.created_at, m.lock_expires_at FROM @schema@.queue_message m
            WHERE m.available_at <= now() ORDER BY m.available_at LIMIT 10000) near
         WHERE near.lock_expires_at IS NULL))
$body$;
