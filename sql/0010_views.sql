-- Views: the application's face, and what an operator looks at. Operators' views hold no contents, headers or options.

-- The simple face: what an application may write, and nothing of the relay's. INSERT ... RETURNING id and ON CONFLICT (id) DO NOTHING work
-- through it.
CREATE VIEW @schema@.queue_message_app AS
    SELECT id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at FROM @schema@.queue_message;
COMMENT ON VIEW @schema@.queue_message_app IS 'What an application inserts: no column of the relay''s.';

-- Dead messages with what was said and done about them.
CREATE VIEW @schema@.queue_message_dead_list AS
    SELECT d.id, d.exchange, d.routing_key, d.ordering_key, d.result, d.error_code, d.error_detail, d.attempts, d.handled_by,
        d.created_at, d.archived_at, a.acknowledged_at, a.acknowledged_by, a.note, d.replay_of, d.archived_xid, d.xid, d.seq
    FROM @schema@.queue_message_dead d LEFT JOIN @schema@.queue_message_dead_ack a ON (a.xid, a.seq) = (d.xid, d.seq);

-- Ordering keys that wait: parked, or their head waits for its next attempt or its own time, or the exchange of their head is paused (then
-- held_at, held_by and reason are the pause's). behind: messages that wait for the head. Heads of paused exchanges are found by one look
-- a key along the index of keys, however long the queue is, and only while something is paused.
CREATE VIEW @schema@.queue_message_blocked_key AS
    WITH RECURSIVE head AS (
        (SELECT m.ordering_key, m.id, m.exchange, m.routing_key, m.attempts, m.available_at, m.lock_expires_at, m.last_error
         FROM @schema@.queue_message m
         WHERE m.ordering_key IS NOT NULL AND EXISTS (SELECT FROM @schema@.queue_message_pause)
         ORDER BY m.ordering_key, m.xid, m.seq LIMIT 1)
        UNION ALL
        SELECT n.* FROM head CROSS JOIN LATERAL (
            SELECT m.ordering_key, m.id, m.exchange, m.routing_key, m.attempts, m.available_at, m.lock_expires_at, m.last_error
            FROM @schema@.queue_message m WHERE m.ordering_key > head.ordering_key ORDER BY m.ordering_key, m.xid, m.seq LIMIT 1) n
    )
    SELECT head.ordering_key, 'exchange paused' AS why, head.id AS head_id, head.exchange, head.routing_key, head.attempts, head.available_at,
        head.last_error, p.paused_at AS held_at, p.paused_by AS held_by, p.reason,
        (SELECT count(*) FROM @schema@.queue_message b WHERE b.ordering_key = head.ordering_key) - 1 AS behind
    FROM head JOIN @schema@.queue_message_pause p ON p.exchange = head.exchange
    WHERE head.lock_expires_at IS NULL AND (head.available_at IS NULL OR head.available_at <= now())
      AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold h WHERE h.ordering_key = head.ordering_key)
    UNION ALL
    SELECT k.ordering_key, CASE WHEN h.ordering_key IS NOT NULL THEN 'parked' ELSE 'head waits' END AS why,
        head.id AS head_id, head.exchange, head.routing_key, head.attempts, head.available_at, head.last_error,
        h.held_at, h.held_by, h.reason,
        greatest((SELECT count(*) FROM @schema@.queue_message b WHERE b.ordering_key = k.ordering_key) - 1, 0) AS behind
    FROM (
        SELECT m.ordering_key FROM @schema@.queue_message m
        WHERE m.available_at > now() AND m.ordering_key IS NOT NULL AND m.lock_expires_at IS NULL
          AND NOT EXISTS (SELECT FROM @schema@.queue_message e WHERE e.ordering_key = m.ordering_key AND (e.xid, e.seq) < (m.xid, m.seq))
        UNION SELECT ordering_key FROM @schema@.queue_message_key_hold
    ) k
    LEFT JOIN @schema@.queue_message_key_hold h ON h.ordering_key = k.ordering_key
    LEFT JOIN LATERAL (SELECT m.id, m.exchange, m.routing_key, m.attempts, m.available_at, m.last_error FROM @schema@.queue_message m
                       WHERE m.ordering_key = k.ordering_key ORDER BY m.xid, m.seq LIMIT 1) head ON true;

-- What became of the 5,000 messages settled last, found by the index of archived_xid, and how many of them the last minute saw.
CREATE VIEW @schema@.queue_message_recent AS
    SELECT result, error_code, count(*) AS messages, count(*) FILTER (WHERE archived_at > now() - interval '60 seconds') AS last_minute,
        extract(epoch FROM now() - min(archived_at))::double precision AS oldest_seconds
    FROM (SELECT a.result, a.error_code, a.archived_at FROM @schema@.queue_message_archive a ORDER BY a.archived_xid DESC LIMIT 5000) newest
    GROUP BY result, error_code;

-- Relays that run or ran lately. alive: heard from within the lock time, and not left. Of one that is not, what it last said is no longer
-- true: it has no lanes and no state but that it left. kept: how many messages still carry its lock, looked for among the 100,000 from its
-- lowest position on; null for the living, and for those silent for five minutes longer, whose locks others have long freed.
CREATE VIEW @schema@.queue_message_relay_state AS
    SELECT r.id, r.name, r.version, r.host, r.pid, r.started_at, r.heartbeat_at, lately.silent_for, life.alive,
        CASE WHEN life.alive THEN
            (SELECT count(*) FROM @schema@.queue_message_lane l WHERE l.owner = r.id AND l.lease_expires_at > now()) ELSE 0 END AS lanes,
        CASE WHEN life.alive OR lately.has_left THEN r.state ELSE '{}' END AS state,
        CASE WHEN NOT life.alive AND (lately.has_left OR lately.silent_for <= lately.lock_time + interval '5 minutes') THEN
            (SELECT count(*) FROM (SELECT m.locked_by, m.lock_expires_at FROM @schema@.queue_message m
                                   WHERE (m.xid, m.seq) >= (r.low_xid, r.low_seq) ORDER BY m.xid, m.seq LIMIT 100000) near
             WHERE near.locked_by = r.id AND near.lock_expires_at IS NOT NULL) END AS kept
    FROM @schema@.queue_message_relay r
    CROSS JOIN LATERAL (
        SELECT now() - r.heartbeat_at AS silent_for, r.state ? 'left' AS has_left,
            make_interval(secs => @schema@.queue_message_setting_value('lock_seconds')::double precision) AS lock_time) lately
    CROSS JOIN LATERAL (SELECT lately.silent_for < lately.lock_time AND NOT lately.has_left AS alive) life;

-- Counts of the queue. A large queue is not walked for them: then waiting comes from the statistics (counted is false), and locked from what
-- the living relays say that they have in flight and those that fell silent lately have kept.
CREATE FUNCTION @schema@.queue_message_count(OUT counted boolean, OUT waiting bigint, OUT locked bigint, OUT delayed bigint)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET jit = off AS $body$
#variable_conflict use_variable
DECLARE
    queue regclass := format('%I.queue_message', @schema_literal@::text)::regclass;
    lock_time interval := make_interval(secs => @schema@.queue_message_setting_value('lock_seconds')::double precision);
BEGIN
    counted := pg_relation_size(queue) < 128 * 1024 * 1024;
    SELECT count(*) INTO delayed FROM @schema@.queue_message m WHERE m.available_at > now() AND m.lock_expires_at IS NULL;
    IF counted THEN
        SELECT count(*), count(m.lock_expires_at) INTO waiting, locked FROM @schema@.queue_message m;
        RETURN;
    END IF;
    SELECT greatest(s.n_live_tup, 0) INTO waiting FROM pg_stat_all_tables s WHERE s.relid = queue;
    -- What one has kept is looked for, so it is left out as soon as the others have freed it.
    SELECT coalesce(sum(CASE
        WHEN s.alive THEN CASE jsonb_typeof(s.state -> 'in_flight') WHEN 'number' THEN (s.state -> 'in_flight')::bigint END
        WHEN s.silent_for < lock_time + interval '1 minute' THEN s.kept END), 0) INTO locked
    FROM @schema@.queue_message_relay_state s;
END
$body$;

-- When the oldest message that could be claimed was inserted; null where none waits. Unordered ones are looked for from the lowest position
-- at which a living relay may still claim, held exchanges included (head), so that what was settled below is not walked while somebody
-- holds a snapshot.
-- By index only, as claims are planned: without statistics PostgreSQL would read the whole table.
CREATE FUNCTION @schema@.queue_message_oldest() RETURNS timestamptz
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off SET enable_bitmapscan = off SET enable_sort = off SET jit = off AS $body$
    SELECT least(
        (SELECT m.created_at FROM @schema@.queue_message m
         WHERE (m.xid, m.seq) >= (coalesce(low.xid, '0'), coalesce(low.seq, 0))
           AND m.lock_expires_at IS NULL AND m.available_at IS NULL AND m.ordering_key IS NULL
         ORDER BY m.xid, m.seq LIMIT 1),
        (SELECT m.created_at FROM @schema@.queue_message m
         WHERE m.ordering_key IS NOT NULL AND m.lock_expires_at IS NULL AND m.available_at IS NULL ORDER BY m.xid, m.seq, m.lane LIMIT 1),
        (SELECT m.available_at FROM @schema@.queue_message m
         WHERE m.lock_expires_at IS NULL AND m.available_at <= now() ORDER BY m.available_at LIMIT 1))
    FROM (SELECT) AS always LEFT JOIN LATERAL (
        SELECT place.xid, place.seq
        FROM @schema@.queue_message_relay r CROSS JOIN LATERAL (VALUES (r.low_xid, r.low_seq), (r.head_xid, r.head_seq)) AS place (xid, seq)
        WHERE r.heartbeat_at > now() - make_interval(secs => @schema@.queue_message_setting_value('lock_seconds')::double precision)
        ORDER BY place.xid, place.seq LIMIT 1) AS low ON true
$body$;

-- Whole UTC days after today up to the first for which the archive has no partition; below 1 is an alarm, and -1 means that today's is
-- missing, so that nothing can be archived.
CREATE FUNCTION @schema@.queue_message_days_ahead() RETURNS integer
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    -- Days without a gap before them stand at the place that they have in the order of all days from today on.
    SELECT count(*) FILTER (WHERE ahead = place)::integer - 1 FROM (
        SELECT day - today AS ahead, row_number() OVER (ORDER BY day) - 1 AS place
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
            to_date(right(c.relname, 8), 'YYYYMMDD') AS day, date(now() AT TIME ZONE 'UTC') AS today
        WHERE i.inhparent = format('%I.queue_message_archive_daily', @schema_literal@::text)::regclass AND c.relname ~ '_[0-9]{8}$' AND day >= today
    ) AS days
$body$;

-- The whole outbox in one row.
CREATE VIEW @schema@.queue_message_status AS
    SELECT n.waiting, n.locked, n.delayed, greatest(n.waiting - n.locked - n.delayed, 0) AS ready, n.counted,
        greatest(extract(epoch FROM now() - CASE WHEN isfinite(o.since) THEN o.since END), 0)::double precision AS oldest_seconds,
        -- The dead by way of the whole archive, so that its lock comes before that of a part, as it does for settles and for LOCK TABLE:
        -- the export's lag reads the whole, and parts first would be a deadlock with whoever locks the archive.
        (SELECT count(*) FROM (SELECT FROM @schema@.queue_message_archive d WHERE d.result IN ('rejected', 'failed', 'lock_expired')
         AND NOT EXISTS (SELECT FROM @schema@.queue_message_dead_ack a WHERE (a.xid, a.seq) = (d.xid, d.seq)) LIMIT 10000) AS first) AS dead_unacknowledged,
        (SELECT count(*) FROM @schema@.queue_message_blocked_key k WHERE k.why <> 'exchange paused') AS blocked_keys,
        (SELECT count(*) FROM @schema@.queue_message_pause) AS paused_exchanges,
        (SELECT count(*) FROM @schema@.queue_message_limit) AS limited_exchanges,
        -- What came back from an expired lock and goes one by one, by the rule of due_suspect; by queue_message_available_at_idx.
        (SELECT count(*) FROM (SELECT FROM @schema@.queue_message m
         WHERE m.available_at <= now() AND m.lock_expires_at IS NULL AND m.locked_by IS NOT NULL AND m.attempts >
             (SELECT CASE WHEN @schema@.queue_message_setting_value('max_attempts')::integer >= 4 THEN 1 ELSE 0 END)
         LIMIT 10000) AS alone) AS suspects,
        (SELECT count(*) FROM @schema@.queue_message_relay_state s WHERE s.alive) AS relays_alive,
        @schema@.queue_message_days_ahead() AS partition_days_ahead,
        pg_notification_queue_usage() AS notification_queue_usage,
        -- Of a registered export; of what it compared, only partitions that are still here.
        @schema@.queue_message_export_lag() AS export_lag_seconds,
        @schema@.queue_message_days_unverified() AS export_unverified_days,
        (SELECT count(*) FROM @schema@.queue_message_export e WHERE e.difference IS NOT NULL
         AND to_regclass(format('%I.%I', @schema_literal@::text, e.partition)) IS NOT NULL) AS export_differing_partitions
    FROM @schema@.queue_message_count() n, @schema@.queue_message_oldest() AS o (since);
