-- What `relay check --queue` sees of the queue. An operator may not read the table; this shows where messages stand, and no content.

-- A page of the queue in claim order, from a position on: of each message what decides whether, and when, a relay finds it. Reads only.
-- Times are seconds since 1970, because some drivers cannot read an infinite one. Of an ordering key the head is looked for once a page.
CREATE FUNCTION @schema@.queue_message_check_page(after_xid xid8, after_seq bigint, most integer DEFAULT 10000)
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
        SELECT m.xid, m.seq, m.id, m.exchange, m.ordering_key, m.lane, m.attempts, m.available_at, m.lock_expires_at, m.lock_token,
            m.locked_by, m.xmax::text AS locker
        FROM @schema@.queue_message m WHERE (m.xid, m.seq) > (after_xid, after_seq) ORDER BY m.xid, m.seq LIMIT most
    ), head AS MATERIALIZED (
        SELECT key.ordering_key, first.xid, first.seq
        FROM (SELECT DISTINCT w.ordering_key FROM walked w WHERE w.ordering_key IS NOT NULL) AS key
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
    LEFT JOIN head ON head.ordering_key = w.ordering_key
    LEFT JOIN writer ON writer.locker = w.locker
    ORDER BY w.xid, w.seq
$body$;

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_28;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_28() p
    UNION ALL VALUES
        ('queue_message_relay', 'EXECUTE ON FUNCTION %1$I.queue_message_check_page'),
        ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_check_page')
$body$;
