-- The newest of a coalesce key, and the parts of a bundle key, are looked for in the order of the index that has them. A search by equality in the
-- order of `seq` fits the primary key too, and where statistics know a single key, PostgreSQL walks all of that for each key: a fold of 10,000 keys
-- took five minutes. Any producer can insert many messages of one key, and autovacuum then takes these statistics.

-- As before, by the index of keys.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_due(clock timestamptz, most integer, large boolean, since timestamptz) RETURNS bigint[]
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    UPDATE @schema@.queue_message_keyed_row k SET due_at = k.due_at + interval '1 us' WHERE k.seq = ANY (ARRAY(
        SELECT k.seq FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (ARRAY(
            SELECT o.seq FROM (
                SELECT k.seq, k.due_at, k.available_at FROM @schema@.queue_message_keyed_row k
                WHERE k.large = queue_message_keyed_due.large AND k.due_at < queue_message_keyed_due.clock
                    AND k.due_at >= queue_message_keyed_due.since
                ORDER BY k.due_at LIMIT queue_message_keyed_due.most) o
            WHERE o.available_at >= o.due_at)) FOR UPDATE SKIP LOCKED));
    WITH oldest AS MATERIALIZED (
        SELECT k.seq, k.exchange, k.coalesce_key, k.bundle_key, k.routing_key, k.due_at FROM @schema@.queue_message_keyed_row k
        WHERE k.large = queue_message_keyed_due.large AND k.due_at <= queue_message_keyed_due.clock
            AND k.due_at >= queue_message_keyed_due.since
        ORDER BY k.due_at LIMIT queue_message_keyed_due.most FOR UPDATE SKIP LOCKED
    ), newest AS (
        SELECT version.seq FROM (
            SELECT DISTINCT ON (o.coalesce_key, o.exchange) o.coalesce_key, o.exchange FROM oldest o WHERE o.coalesce_key IS NOT NULL
            ORDER BY o.coalesce_key, o.exchange) key
        CROSS JOIN LATERAL (
            SELECT k.seq FROM @schema@.queue_message_keyed_row k
            WHERE (k.coalesce_key, k.exchange, k.seq) <= (key.coalesce_key, key.exchange, 9223372036854775807)
                AND (k.coalesce_key, k.exchange) >= (key.coalesce_key, key.exchange)
                AND k.coalesce_key IS NOT NULL AND (k.available_at IS NULL OR k.available_at < k.due_at)
            ORDER BY k.coalesce_key DESC, k.exchange DESC, k.seq DESC LIMIT 1 FOR UPDATE SKIP LOCKED) version
    ), parts AS (
        SELECT part.seq FROM (
            SELECT o.bundle_key, o.routing_key, o.exchange FROM oldest o
            WHERE o.bundle_key IS NOT NULL GROUP BY 1, 2, 3 ORDER BY (array_agg(o.due_at ORDER BY o.due_at))[1]) key
        CROSS JOIN LATERAL (
            SELECT k.seq FROM @schema@.queue_message_keyed_row k
            WHERE (k.bundle_key, k.routing_key, k.exchange, k.seq) >= (key.bundle_key, key.routing_key, key.exchange, 0)
                AND (k.bundle_key, k.routing_key, k.exchange) <= (key.bundle_key, key.routing_key, key.exchange)
                AND k.bundle_key IS NOT NULL AND (k.available_at IS NULL OR k.available_at < k.due_at)
            ORDER BY k.bundle_key, k.routing_key, k.exchange, k.seq LIMIT queue_message_keyed_due.most FOR UPDATE SKIP LOCKED) part
        LIMIT queue_message_keyed_due.most
    )
    SELECT ARRAY(
        SELECT o.seq FROM oldest o WHERE o.coalesce_key IS NOT NULL UNION SELECT n.seq FROM newest n UNION ALL SELECT p.seq FROM parts p)
$body$;

-- As before, by the index of keys.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_failed(seqs bigint[], clock timestamptz, problem text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    longest interval := make_interval(secs => @schema@.queue_message_setting_value('backoff_max')::double precision);
    waited interval := (SELECT clock - min(coalesce(k.available_at, k.created_at)) FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (seqs));
    newest bigint := seqs[cardinality(seqs)];
    key record;
BEGIN
    SELECT k.exchange, k.coalesce_key, k.bundle_key, k.routing_key INTO key FROM @schema@.queue_message_keyed_row k WHERE k.seq = newest;
    UPDATE @schema@.queue_message_keyed_row k
    SET due_at = greatest(k.due_at, clock + least(greatest(waited, '1 second'), longest)), last_error = CASE WHEN k.seq = newest THEN problem END
    WHERE k.seq = ANY (seqs || ARRAY(
        SELECT k.seq FROM @schema@.queue_message_keyed_row k
        WHERE (k.coalesce_key, k.exchange, k.seq) < (key.coalesce_key, key.exchange, newest)
            AND (k.coalesce_key, k.exchange) >= (key.coalesce_key, key.exchange)
            AND k.coalesce_key IS NOT NULL AND (k.available_at IS NULL OR k.available_at < k.due_at) AND k.due_at <= clock
        ORDER BY k.coalesce_key DESC, k.exchange DESC, k.seq DESC LIMIT 10000 FOR UPDATE SKIP LOCKED
    ) || ARRAY(
        SELECT k.seq FROM @schema@.queue_message_keyed_row k
        WHERE (k.bundle_key, k.routing_key, k.exchange) <= (key.bundle_key, key.routing_key, key.exchange)
            AND (k.bundle_key, k.routing_key, k.exchange) >= (key.bundle_key, key.routing_key, key.exchange)
            AND k.bundle_key IS NOT NULL AND (k.available_at IS NULL OR k.available_at < k.due_at) AND k.due_at <= clock
        ORDER BY k.bundle_key DESC, k.routing_key DESC, k.exchange DESC, k.seq DESC LIMIT 10000 FOR UPDATE SKIP LOCKED
    ));
    RAISE WARNING 'messages with a key cannot be sent to the queue, and are tried again: %', problem;
END
$body$;

-- The index of coalesce keys lacks the messages that wait for a time of their own, and these are looked for, too.
CREATE INDEX queue_message_keyed_row_delayed_idx ON @schema@.queue_message_keyed_row (coalesce_key, exchange)
    WHERE coalesce_key IS NOT NULL AND available_at >= due_at;

-- As before, by an index: each old key was compared with each message that waits under a key.
CREATE OR REPLACE FUNCTION @schema@.queue_message_delete_coalesced(clock timestamptz) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off
    SET enable_hashjoin = off SET enable_mergejoin = off SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    most constant integer := 50000;
    walk record;
    page record;
BEGIN
    -- The row is missing where only the schema was restored.
    IF NOT EXISTS (SELECT FROM @schema@.queue_message_walk w WHERE w.name = 'coalesced') THEN
        INSERT INTO @schema@.queue_message_walk (name) VALUES ('coalesced') ON CONFLICT DO NOTHING;
    END IF;
    SELECT w.past, w.again_at, w.more INTO walk FROM @schema@.queue_message_walk w WHERE w.name = 'coalesced' FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    -- A round that is to begin later than in a day is one of a clock that was set back since.
    IF NOT walk.more AND (clock >= walk.again_at OR clock < walk.again_at - interval '1 day') THEN
        walk.past := '-infinity';
        walk.again_at := clock + interval '1 day';
    END IF;
    WITH old AS MATERIALIZED (
        SELECT c.ctid AS place, c.exchange, c.coalesce_key, c.message_id, c.folded_at FROM @schema@.queue_message_coalesced c
        WHERE c.folded_at > walk.past AND c.folded_at <= clock - interval '1 day'
        ORDER BY c.folded_at FETCH FIRST (most) ROWS WITH TIES
    ), gone AS (
        DELETE FROM @schema@.queue_message_coalesced c WHERE c.ctid = ANY (ARRAY(
            SELECT same.ctid FROM old JOIN @schema@.queue_message_coalesced same ON same.ctid = old.place AND same.folded_at = old.folded_at
            WHERE NOT EXISTS (SELECT FROM @schema@.queue_message m WHERE m.id = old.message_id)
              AND NOT EXISTS (SELECT FROM @schema@.queue_message_keyed_row k WHERE (k.exchange, k.coalesce_key) = (old.exchange, old.coalesce_key)
                AND (k.available_at IS NULL OR k.available_at < k.due_at))
              AND NOT EXISTS (SELECT FROM @schema@.queue_message_keyed_row k WHERE (k.exchange, k.coalesce_key) = (old.exchange, old.coalesce_key)
                AND k.available_at >= k.due_at)
            FOR UPDATE OF same SKIP LOCKED))
        RETURNING c.folded_at
    )
    SELECT (SELECT count(*) FROM gone) AS gone, count(*) AS looked, max(old.folded_at) AS last INTO page FROM old;
    UPDATE @schema@.queue_message_walk w
    SET past = coalesce(page.last, walk.past), again_at = walk.again_at, more = page.looked >= most WHERE w.name = 'coalesced';
    RETURN page.gone;
END
$body$;

-- As before; a message that is available since a time before it was inserted, is as old as it is.
CREATE OR REPLACE FUNCTION @schema@.queue_message_oldest() RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
    WITH place AS MATERIALIZED (SELECT p.xid, p.seq FROM @schema@.queue_message_claim_places() p)
    SELECT least(
        (SELECT min(first.created_at) FROM (TABLE place UNION ALL SELECT '0', 0 WHERE NOT EXISTS (TABLE place)) AS begun
         CROSS JOIN LATERAL (
            SELECT near.created_at FROM (
                SELECT m.created_at, m.lock_expires_at, m.available_at FROM @schema@.queue_message m
                WHERE (m.xid, m.seq) >= (begun.xid, begun.seq) ORDER BY m.xid, m.seq LIMIT 10000) near
            WHERE near.lock_expires_at IS NULL AND near.available_at IS NULL LIMIT 1) first),
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
