-- Texts of producers are sorted and not hashed, where they are many. PostgreSQL's hash of a text has no seed, so that texts with equal hashes can be
-- computed: a fold of 10,000 keys with one hash took 74 s instead of one, and the view of the status 5 s. An aggregate with an order of its own, a
-- count of distinct values, DISTINCT ON and a window are always sorted; DISTINCT, GROUP BY, UNION and joins may be hashed.

-- As before, by sorted keys.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_split(seqs bigint[], lists integer) RETURNS TABLE (list bigint[], large boolean, cut boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_column
BEGIN
    RETURN QUERY WITH key AS (
        SELECT array_agg(k.seq ORDER BY k.seq) AS seqs, bool_or(k.large) AS large, sum(k.size) > 4194304 AS cut,
            (sum(k.size) + 4096 * count(*))::float8 AS weight, min(k.due_at) AS due_at, min(k.seq) AS first
        FROM @schema@.queue_message_keyed_row k WHERE k.seq = ANY (queue_message_keyed_split.seqs)
        GROUP BY k.exchange, k.coalesce_key, k.bundle_key, CASE WHEN k.bundle_key IS NOT NULL THEN k.routing_key END
    ), placed AS (
        SELECT key.*, row_number() OVER due AS number, count(*) OVER () AS keys, sum(key.weight) OVER due - key.weight AS ahead
        FROM key WINDOW due AS (ORDER BY key.due_at, key.first ROWS UNBOUNDED PRECEDING)
    )
    SELECT array_agg(one.seq ORDER BY one.seq), p.large, bool_or(p.cut) FROM placed p CROSS JOIN unnest(p.seqs) AS one (seq)
    GROUP BY p.large, (p.number - 1) * queue_message_keyed_split.lists / p.keys, floor(p.ahead / 4194304), CASE WHEN p.cut THEN p.number END
    ORDER BY p.large DESC, min(p.number);
END
$body$;

-- As before, by sorted keys.
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
            WHERE k.coalesce_key = key.coalesce_key AND k.exchange = key.exchange AND (k.available_at IS NULL OR k.available_at < k.due_at)
            ORDER BY k.seq DESC LIMIT 1 FOR UPDATE SKIP LOCKED) version
    ), parts AS (
        SELECT part.seq FROM (
            SELECT o.bundle_key, o.routing_key, o.exchange FROM oldest o
            WHERE o.bundle_key IS NOT NULL GROUP BY 1, 2, 3 ORDER BY (array_agg(o.due_at ORDER BY o.due_at))[1]) key
        CROSS JOIN LATERAL (
            SELECT k.seq FROM @schema@.queue_message_keyed_row k
            WHERE k.bundle_key = key.bundle_key AND k.routing_key = key.routing_key AND k.exchange = key.exchange
                AND (k.available_at IS NULL OR k.available_at < k.due_at)
            ORDER BY k.seq LIMIT queue_message_keyed_due.most FOR UPDATE SKIP LOCKED) part
        LIMIT queue_message_keyed_due.most
    )
    SELECT ARRAY(
        SELECT o.seq FROM oldest o WHERE o.coalesce_key IS NOT NULL UNION SELECT n.seq FROM newest n UNION ALL SELECT p.seq FROM parts p)
$body$;

-- As before, by sorted keys.
CREATE OR REPLACE FUNCTION @schema@.queue_message_keyed_leave(seqs bigint[], clock timestamptz, most integer, since timestamptz) RETURNS void
LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    UPDATE @schema@.queue_message_keyed_row k SET large = true
    WHERE NOT k.large AND k.seq = ANY (queue_message_keyed_leave.seqs || ARRAY(
        SELECT one.seq FROM (
            SELECT either.seq, bool_or(either.left_over) OVER (PARTITION BY either.exchange, either.routing_key, either.bundle_key) AS left_over
            FROM (
                SELECT small.*, false AS left_over FROM (
                    SELECT s.seq, s.exchange, s.routing_key, s.bundle_key FROM @schema@.queue_message_keyed_row s
                    WHERE NOT s.large AND s.due_at <= queue_message_keyed_leave.clock AND s.due_at >= queue_message_keyed_leave.since
                    ORDER BY s.due_at LIMIT queue_message_keyed_leave.most FOR UPDATE SKIP LOCKED) small
                WHERE small.bundle_key IS NOT NULL
                UNION ALL
                SELECT l.seq, l.exchange, l.routing_key, l.bundle_key, true FROM @schema@.queue_message_keyed_row l
                WHERE l.seq = ANY (queue_message_keyed_leave.seqs)) either) one
        WHERE one.left_over))
$body$;

-- As before, by numbered keys: those of a page are compared once.
CREATE OR REPLACE FUNCTION @schema@.queue_message_check_page(after_xid xid8, after_seq bigint, most integer DEFAULT 10000)
RETURNS TABLE (
    xid xid8, seq bigint, id uuid, exchange text, ordering_key text, attempts integer, available_at double precision,
    lock_ends_at double precision, locked_by integer,
    -- The lock is over; it is a relay's that is not alive, and ends later than any lock does.
    over boolean, abandoned boolean,
    -- The transaction id is not one of this cluster's so far.
    foreign_id boolean,
    -- The key's lane as it is stored and as it must be, and whether any relay can own it.
    lane smallint, key_lane smallint, lane_known boolean,
    -- The index of keys leads to the key; this is the lowest message of it; an operator holds it.
    indexed boolean, head boolean, held boolean,
    paused boolean, limited boolean,
    -- A session that has the row locked or changed and not ended its transaction; 0 for a prepared transaction.
    session integer, clock double precision)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS $body$
    WITH walked AS MATERIALIZED (
        SELECT first.*, dense_rank() OVER (ORDER BY first.ordering_key) AS key FROM (
            SELECT m.xid, m.seq, m.id, m.exchange, m.ordering_key, m.lane, m.attempts, m.available_at, m.lock_expires_at, m.lock_token,
                m.locked_by, m.xmax::text AS locker
            FROM @schema@.queue_message m WHERE (m.xid, m.seq) > (after_xid, after_seq) ORDER BY m.xid, m.seq LIMIT most) first
    ), head AS MATERIALIZED (
        SELECT key.key, first.xid, first.seq
        FROM (SELECT DISTINCT ON (w.key) w.key, w.ordering_key FROM walked w WHERE w.ordering_key IS NOT NULL ORDER BY w.key) AS key
        CROSS JOIN LATERAL (
            SELECT e.xid, e.seq FROM @schema@.queue_message e WHERE e.ordering_key = key.ordering_key ORDER BY e.xid, e.seq LIMIT 1) AS first
    ), writer AS MATERIALIZED (
        SELECT l.transactionid::text AS locker, max(coalesce(l.pid, 0)) AS pid FROM pg_locks l
        WHERE l.locktype = 'transactionid' AND l.mode = 'ExclusiveLock' AND l.granted GROUP BY l.transactionid::text
    ), lock_time AS MATERIALIZED (
        SELECT make_interval(secs => @schema@.queue_message_setting_value('lock_seconds')::double precision) AS length
    ), living AS MATERIALIZED (
        SELECT r.id FROM @schema@.queue_message_relay r, lock_time
        WHERE r.heartbeat_at > now() - lock_time.length AND r.heartbeat_at < now() + lock_time.length AND NOT r.state ? 'left'
    )
    SELECT w.xid, w.seq, w.id, w.exchange, w.ordering_key, w.attempts, extract(epoch FROM w.available_at)::double precision,
        extract(epoch FROM w.lock_expires_at)::double precision, w.locked_by,
        CASE WHEN w.lock_expires_at IS NULL THEN false
            ELSE @schema@.queue_message_lock_over(w.lock_expires_at, w.lock_token, w.locked_by, now()) END,
        -- After the clock was set back such locks are over soon, and freed: see queue_message_lock_over().
        w.lock_token IS NOT NULL AND w.locked_by IS NOT NULL AND w.locked_by NOT IN (SELECT living.id FROM living)
            AND w.lock_expires_at > now() + (SELECT lock_time.length FROM lock_time) + interval '10 seconds'
            AND NOT EXISTS (SELECT FROM @schema@.queue_message_clock_seen c WHERE c.chore = 'sweep' AND c.moved_at IS NOT NULL),
        w.xid >= pg_snapshot_xmax(pg_current_snapshot()),
        w.lane, @schema@.queue_message_lane_of(w.ordering_key),
        w.lane IN (SELECT l.lane FROM @schema@.queue_message_lane l),
        w.ordering_key IS NULL OR coalesce((head.xid, head.seq) <= (w.xid, w.seq), false),
        w.ordering_key IS NULL OR coalesce((head.xid, head.seq) = (w.xid, w.seq), false),
        w.ordering_key IS NOT NULL AND w.ordering_key IN (SELECT h.ordering_key FROM @schema@.queue_message_key_hold h),
        w.exchange IN (SELECT p.exchange FROM @schema@.queue_message_pause p),
        w.exchange IN (SELECT l.exchange FROM @schema@.queue_message_limit l),
        writer.pid, extract(epoch FROM now())::double precision
    FROM walked w
    LEFT JOIN head ON head.key = w.key
    LEFT JOIN writer ON writer.locker = w.locker
    ORDER BY w.xid, w.seq
$body$;

-- As before, by sorted keys.
CREATE OR REPLACE FUNCTION @schema@.queue_message_blocked(most integer, paused boolean) RETURNS TABLE (ordering_key text, why text, head_id uuid,
    exchange text, routing_key text, attempts integer, available_at timestamptz, last_error text, held_at timestamptz, held_by text, reason text)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET enable_hashjoin = off SET enable_mergejoin = off
    SET jit = off AS $body$
    WITH RECURSIVE head AS (
        (SELECT m.ordering_key, m.id, m.exchange, m.routing_key, m.attempts, m.available_at, m.lock_expires_at, m.last_error, 1 AS place
         FROM @schema@.queue_message m
         WHERE m.ordering_key IS NOT NULL AND queue_message_blocked.paused AND EXISTS (SELECT FROM @schema@.queue_message_pause)
         ORDER BY m.ordering_key, m.xid, m.seq LIMIT 1)
        UNION ALL
        SELECT n.* FROM head CROSS JOIN LATERAL (
            SELECT m.ordering_key, m.id, m.exchange, m.routing_key, m.attempts, m.available_at, m.lock_expires_at, m.last_error,
                head.place + 1
            FROM @schema@.queue_message m WHERE head.place < 10000 AND m.ordering_key > head.ordering_key
            ORDER BY m.ordering_key, m.xid, m.seq LIMIT 1) n
    )
    SELECT head.ordering_key, 'exchange paused', head.id, head.exchange, head.routing_key, head.attempts, head.available_at, head.last_error,
        p.paused_at, p.paused_by, p.reason
    FROM head JOIN @schema@.queue_message_pause p ON p.exchange = head.exchange
    WHERE head.lock_expires_at IS NULL AND (head.available_at IS NULL OR head.available_at <= now())
      AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold h WHERE h.ordering_key = head.ordering_key)
    UNION ALL
    SELECT k.ordering_key, CASE WHEN h.ordering_key IS NOT NULL THEN 'parked' ELSE 'head waits' END,
        head.id, head.exchange, head.routing_key, head.attempts, head.available_at, head.last_error, h.held_at, h.held_by, h.reason
    FROM (
        SELECT DISTINCT ON (either.ordering_key) either.ordering_key FROM (
            SELECT w.ordering_key FROM @schema@.queue_message_waiting_heads() AS w (ordering_key)
            UNION ALL (SELECT h.ordering_key FROM @schema@.queue_message_key_hold h ORDER BY h.ordering_key LIMIT queue_message_blocked.most)) either
        ORDER BY either.ordering_key
    ) k
    LEFT JOIN @schema@.queue_message_key_hold h ON h.ordering_key = k.ordering_key
    LEFT JOIN LATERAL (
        SELECT m.ordering_key, m.id, m.exchange, m.routing_key, m.attempts, m.available_at, m.last_error FROM @schema@.queue_message m
        WHERE m.ordering_key >= k.ordering_key ORDER BY m.ordering_key, m.xid, m.seq LIMIT 1) head ON head.ordering_key = k.ordering_key
$body$;

-- As before, by sorted keys.
CREATE OR REPLACE VIEW @schema@.queue_message_status AS
    SELECT n.waiting, n.locked, n.delayed, greatest(n.waiting - n.locked - n.delayed, 0) AS ready, n.counted,
        greatest(extract(epoch FROM now() - CASE WHEN isfinite(o.since) THEN o.since END), 0)::double precision AS oldest_seconds,
        @schema@.queue_message_dead_open() AS dead_unacknowledged,
        (SELECT count(DISTINCT blocked.ordering_key) FROM (
            SELECT w.ordering_key FROM @schema@.queue_message_waiting_heads() AS w (ordering_key)
            UNION ALL (SELECT h.ordering_key FROM @schema@.queue_message_key_hold h LIMIT 10000)) AS blocked) AS blocked_keys,
        (SELECT count(*) FROM @schema@.queue_message_pause) AS paused_exchanges,
        (SELECT count(*) FROM @schema@.queue_message_limit) AS limited_exchanges,
        @schema@.queue_message_suspects() AS suspects,
        (SELECT count(*) FROM @schema@.queue_message_relay_state s WHERE s.alive) AS relays_alive,
        @schema@.queue_message_days_ahead() AS partition_days_ahead,
        pg_notification_queue_usage() AS notification_queue_usage,
        -- Of a registered export; of what it compared, only partitions that are still here.
        @schema@.queue_message_export_lag() AS export_lag_seconds,
        @schema@.queue_message_days_unverified() AS export_unverified_days,
        (SELECT count(*) FROM @schema@.queue_message_export e WHERE e.damage IS NOT NULL OR (e.difference IS NOT NULL
         AND to_regclass(format('%I.%I', @schema_literal@::text, e.partition)) IS NOT NULL)) AS export_differing_partitions
    FROM @schema@.queue_message_count() n, @schema@.queue_message_oldest() AS o (since);

-- As before, by sorted keys.
CREATE OR REPLACE VIEW @schema@.queue_message_recent_key AS
    SELECT exchange, routing_key, count(*) AS messages, (array_agg(archived_at ORDER BY archived_at DESC))[1] AS archived_at
    FROM (SELECT a.exchange, a.routing_key, a.archived_at FROM @schema@.queue_message_archive a ORDER BY a.archived_xid DESC LIMIT 50000) newest
    GROUP BY exchange, routing_key;
