-- Nothing is dropped but what a lake holds that was seen lately. PostgreSQL and its lake know each other by an epoch, a random number that both
-- write with each commit, so that neither a copy nor a backup of the one passes for it.

-- What PostgreSQL knows of its lake, beside how far the export is: its id (of the table archive), the epoch of the last commit that both have,
-- those that a commit may have brought since, the table's version, when it was last seen with its files, and why the last look did not find it.
-- looked_at: when the newest look began, whatever it found; what an older one says does not count.
ALTER TABLE @schema@.queue_message_export_position
    ADD COLUMN lake    text,
    ADD COLUMN epoch   bigint,
    ADD COLUMN pending bigint[] NOT NULL DEFAULT '{}',
    ADD COLUMN version bigint,
    ADD COLUMN seen_at timestamptz,
    ADD COLUMN looked_at timestamptz,
    ADD COLUMN problem text;

-- What looks at the lake have found of a day, also of one that is dropped: the rows that its log names, which never become fewer, and what is
-- wrong with its files.
ALTER TABLE @schema@.queue_message_export
    ADD COLUMN lake_rows bigint,
    ADD COLUMN damage    text;

-- As before, and for how many hours a look at the lake counts, and within how many days each of its files is read again.
CREATE OR REPLACE FUNCTION @schema@.queue_message_setting_rule()
RETURNS TABLE (name text, fallback text, kind text, low numeric, high numeric, words text[])
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    VALUES
        ('max_attempts',        '12',       'integer', 1,    1000000,   NULL::text[]),
        ('backoff_base',        '1',        'number',  0,    86400,     NULL),
        ('backoff_max',         '600',      'number',  0,    604800,    NULL),
        ('lock_seconds',        '30',       'number',  1,    86400,     NULL),
        ('max_body_bytes',      '16777216', 'integer', 1,    134217728, NULL),
        -- Days; 0 keeps for ever.
        ('retention_days',      '30',       'integer', 0,    36500,     NULL),
        ('dead_retention_days', '365',      'integer', 0,    36500,     NULL),
        ('received_retention_days', '30',   'integer', 0,    36500,     NULL),
        -- Keyed messages (0021): how long a dedup_key is known, how long a bundle collects, and what one holds at the most.
        ('dedup_seconds',       '86400',    'integer', 1,    31536000,  NULL),
        ('bundle_seconds',      '1',        'number',  0,    86400,     NULL),
        ('bundle_max_messages', '1000',     'integer', 1,    10000,     NULL),
        ('bundle_max_bytes',    '1048576',  'integer', 1,    134217728, NULL),
        ('unroutable',          'retry',    'policy',  NULL, NULL,      ARRAY['retry', 'reject', 'accept']),
        ('on_dead_key',         'continue', 'word',    NULL, NULL,      ARRAY['continue', 'park']),
        ('on_lock_expired',     'retry',    'word',    NULL, NULL,      ARRAY['retry', 'archive']),
        ('archive',             'all',      'word',    NULL, NULL,      ARRAY['all', 'failures']),
        ('notify',              'idle',     'word',    NULL, NULL,      ARRAY['idle', 'always', 'off']),
        -- inbox: what is here was received; workers handle it, and no relay publishes it.
        ('direction',           'outbox',   'word',    NULL, NULL,      ARRAY['outbox', 'inbox']),
        -- true: a day of the archive is dropped only after its export was verified.
        ('export_registered',   'false',    'word',    NULL, NULL,      ARRAY['true', 'false']),
        ('lake_seen_hours',     '26',       'integer', 1,    8760,      NULL),
        ('lake_reread_days',    '30',       'integer', 1,    36500,     NULL)
$body$;

-- The lake that was seen lately, by its id; null where none was. A stamp of the future is none: the clock was set back since.
CREATE FUNCTION @schema@.queue_message_lake_seen() RETURNS text
LANGUAGE sql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.lake FROM @schema@.queue_message_export_position p
    WHERE p.problem IS NULL AND p.seen_at <= clock_timestamp()
      AND p.seen_at >= clock_timestamp() - make_interval(hours => @schema@.queue_message_setting_value('lake_seen_hours')::integer)
$body$;

-- Before a commit to the lake: remembers the epoch that it will carry, if what the lake has now is still what PostgreSQL has. An earlier one whose
-- job was killed stays beside it, for its commit may have come about; one commit forgets them all.
CREATE FUNCTION @schema@.queue_message_export_begin(lake text, epoch bigint, next bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    INSERT INTO @schema@.queue_message_export_position (exported_xid) VALUES ('0') ON CONFLICT DO NOTHING;
    UPDATE @schema@.queue_message_export_position p SET lake = lake, pending = (ARRAY[next] || p.pending)[:100]
    WHERE p.epoch IS NOT DISTINCT FROM epoch AND (p.lake = lake OR p.epoch IS NULL);
    RETURN FOUND;
END
$body$;

-- After a commit: the epoch that the lake has is PostgreSQL's too, and everything below exported is there. False where it is not one that was
-- begun here since the last.
CREATE FUNCTION @schema@.queue_message_export_commit(lake text, epoch bigint, exported xid8, version bigint) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    UPDATE @schema@.queue_message_export_position p
    SET epoch = epoch, pending = '{}', exported_xid = exported, version = version, noted_at = now()
    WHERE p.lake = lake AND epoch = ANY (p.pending);
    RETURN FOUND;
END
$body$;

-- From now on this lake follows this server: nothing counts as verified until it was compared with it, and nothing as seen.
CREATE FUNCTION @schema@.queue_message_export_follow(lake text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    INSERT INTO @schema@.queue_message_export_position (exported_xid) VALUES ('0') ON CONFLICT DO NOTHING;
    UPDATE @schema@.queue_message_export_position p
    SET lake = lake, epoch = NULL, pending = '{}', exported_xid = '0', version = NULL, seen_at = NULL, looked_at = NULL, problem = NULL, noted_at = now();
    -- Of a day that is gone nobody can say more than was said; what another lake held of it says nothing of this one.
    UPDATE @schema@.queue_message_export e SET
        verified_at = CASE WHEN to_regclass(format('%I.%I', @schema_literal@::text, e.partition)) IS NULL THEN e.verified_at END,
        lake_rows = CASE WHEN e.lake = lake THEN e.lake_rows END, damage = CASE WHEN e.lake = lake THEN e.damage END;
END
$body$;

-- The lake was looked at as it is, from `began` on: how many rows of each partition its log names, and what is wrong with which. What was wrong and
-- is mended is forgotten. False, and nothing is changed, where the lake has gone on meanwhile, or a newer look has ended before this one.
CREATE FUNCTION @schema@.queue_message_export_seen(lake text, epoch bigint, version bigint, began timestamptz, partitions text[], rows bigint[],
    damage text[]) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    -- Locks the row, so that looks and commits come one after the other. A look of the future is none: the clock was set back since.
    UPDATE @schema@.queue_message_export_position p SET seen_at = began, looked_at = began, version = version, problem = NULL
    WHERE p.lake = lake AND p.epoch = epoch AND (p.looked_at <= began OR p.looked_at > clock_timestamp()) IS NOT FALSE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO @schema@.queue_message_export AS e (partition, rows, lake, damage)
    SELECT f.partition, 0, lake, f.damage FROM unnest(partitions, damage) AS f (partition, damage) WHERE f.damage IS NOT NULL
    ON CONFLICT ON CONSTRAINT queue_message_export_pkey DO NOTHING;
    UPDATE @schema@.queue_message_export e
    SET lake_rows = CASE WHEN e.lake = lake THEN greatest(e.lake_rows, f.rows) ELSE e.lake_rows END, damage = f.damage
    FROM unnest(partitions, rows, damage) AS f (partition, rows, damage)
    WHERE e.partition = f.partition
      AND (e.damage IS DISTINCT FROM f.damage OR e.lake = lake AND e.lake_rows IS DISTINCT FROM greatest(e.lake_rows, f.rows));
    RETURN true;
END
$body$;

-- A look did not find the lake, or not as it should be: nothing is dropped until one does.
CREATE FUNCTION @schema@.queue_message_export_unseen(problem text) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    UPDATE @schema@.queue_message_export_position p
    SET problem = @schema@.queue_message_one_line(queue_message_export_unseen.problem, 1000), looked_at = clock_timestamp()
$body$;

-- What is known of the lake, in one row. overdue_seconds: for how long a registered export should have looked at it; null without one.
CREATE VIEW @schema@.queue_message_lake AS
    SELECT r.registered, coalesce(p.epoch IS NOT NULL OR p.exported_xid > '0', false) AS exported, p.lake, p.version, p.noted_at, p.seen_at, extract(epoch FROM now() - p.seen_at)::double precision AS seen_seconds,
        @schema@.queue_message_lake_seen() IS NOT NULL AS seen, p.problem,
        CASE WHEN NOT r.registered THEN NULL WHEN @schema@.queue_message_lake_seen() IS NOT NULL THEN 0
             ELSE greatest(extract(epoch FROM now() - coalesce(p.seen_at, p.noted_at, r.since)) - CASE WHEN p.problem IS NULL THEN r.seconds ELSE 0 END, 0)
        END::double precision AS overdue_seconds
    FROM (SELECT @schema@.queue_message_setting_value('export_registered')::boolean AS registered,
            @schema@.queue_message_setting_value('lake_seen_hours')::integer * 3600 AS seconds,
            (SELECT s.changed_at FROM @schema@.queue_message_setting s WHERE s.name = 'export_registered') AS since) r
    LEFT JOIN @schema@.queue_message_export_position p ON true;
COMMENT ON VIEW @schema@.queue_message_lake IS 'The lake as it was last seen, and whether that is lately enough for retention.';

-- As before, and only where it was compared with the lake that was seen lately, whose files of that day are all there.
CREATE OR REPLACE FUNCTION @schema@.queue_message_verified(day text, OUT rows bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    bound xid8;
    newest xid8;
BEGIN
    SELECT e.rows, e.exported_xid INTO rows, bound FROM @schema@.queue_message_export e
    WHERE e.partition = day AND e.verified_at IS NOT NULL AND e.exported_xid IS NOT NULL
      AND e.damage IS NULL AND e.lake = @schema@.queue_message_lake_seen() FOR UPDATE;
    IF rows IS NULL THEN
        RETURN;
    END IF;
    EXECUTE format('SELECT archived_xid FROM %I.%I WHERE archived_xid < pg_snapshot_xmax(pg_current_snapshot()) ORDER BY archived_xid DESC LIMIT 1', @schema_literal@::text, day) INTO newest;
    IF newest >= bound THEN
        rows := NULL;
        PERFORM @schema@.queue_message_unverify(day);
    END IF;
END
$body$;

-- As before, but nothing while the lake was not seen lately (unseen).
CREATE OR REPLACE FUNCTION @schema@.queue_message_drop_day(day text, exported boolean, OUT action text, OUT messages bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    depends text;
BEGIN
    IF exported AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'Retention with an export must see what was archived last: call queue_message_retain() in a transaction that is READ COMMITTED.'
            USING ERRCODE = 'active_sql_transaction';
    END IF;
    IF exported AND @schema@.queue_message_lake_seen() IS NULL THEN
        action := 'unseen';
        RETURN;
    END IF;
    action := 'unverified';
    IF exported AND @schema@.queue_message_verified(day) IS NULL THEN
        RETURN;
    END IF;
    -- From here nothing can be added, so what is counted holds until the drop; readers go on, a second call is busy.
    EXECUTE format('LOCK TABLE %I.%I IN SHARE ROW EXCLUSIVE MODE', @schema_literal@::text, day);
    IF exported THEN
        EXECUTE format('SELECT count(*) FROM %I.%I', @schema_literal@::text, day) INTO messages;
        IF messages IS DISTINCT FROM @schema@.queue_message_verified(day) THEN
            PERFORM @schema@.queue_message_unverify(day);
            RETURN;
        END IF;
    END IF;
    -- The day alone first: a reader of it is waited for while settles go on. DROP then waits only for the parent, and settles for DROP.
    EXECUTE format('LOCK TABLE %I.%I IN ACCESS EXCLUSIVE MODE', @schema_literal@::text, day);
    EXECUTE format('DROP TABLE %I.%I', @schema_literal@::text, day);
    action := 'dropped';
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        action := 'busy';
        messages := NULL;
    WHEN dependent_objects_still_exist THEN
        GET STACKED DIAGNOSTICS depends = PG_EXCEPTION_DETAIL;
        RAISE WARNING 'Retention keeps %: %.', day, rtrim(depends, '.') USING HINT = 'Drop what depends on it, or end the session that made it.';
        action := 'depended on';
        messages := NULL;
END
$body$;

-- As before, but with a registered export only while the lake that holds them was seen lately, with all of its files: one that is damaged may hold
-- dead messages.
CREATE OR REPLACE FUNCTION @schema@.queue_message_delete_dead(archived_before timestamptz, exported boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    deleted bigint;
    seen text := @schema@.queue_message_lake_seen();
BEGIN
    -- Not a SET clause of the function: only a superuser may write one for a name that no extension has declared.
    PERFORM set_config('relay.retention', 'on', true);
    WITH old AS (
        SELECT d.ctid AS place FROM @schema@.queue_message_dead d
        WHERE d.archived_at < archived_before
          AND (NOT exported OR EXISTS (SELECT FROM @schema@.queue_message_export e
              WHERE e.partition = 'queue_message_dead' AND e.verified_at IS NOT NULL AND e.lake = seen
                AND (d.archived_xid < e.exported_xid OR d.archived_xid >= pg_snapshot_xmax(pg_current_snapshot())))
              AND NOT EXISTS (SELECT FROM @schema@.queue_message_export e WHERE e.damage IS NOT NULL))
        ORDER BY d.archived_at LIMIT 5000
    ), gone AS (
        DELETE FROM @schema@.queue_message_dead d USING old WHERE d.ctid = old.place RETURNING d.xid, d.seq
    ), answers AS (
        DELETE FROM @schema@.queue_message_dead_ack a USING gone WHERE (a.xid, a.seq) = (gone.xid, gone.seq)
    )
    SELECT count(*) INTO deleted FROM gone;
    PERFORM set_config('relay.retention', 'off', true);
    RETURN deleted;
END
$body$;

-- As before; a day that was compared with another lake, or whose files there are damaged, waits too.
CREATE OR REPLACE FUNCTION @schema@.queue_message_days_unverified() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    SELECT (SELECT count(*) FROM @schema@.queue_message_old_days() o WHERE NOT EXISTS (
        SELECT FROM @schema@.queue_message_export e JOIN @schema@.queue_message_export_position p ON p.lake = e.lake
        WHERE e.partition = o AND e.verified_at IS NOT NULL AND e.damage IS NULL))
    WHERE @schema@.queue_message_setting_value('export_registered')::boolean
$body$;

-- As before; and damage is told, of a day that is dropped as well.
CREATE OR REPLACE FUNCTION @schema@.queue_message_export_alarm() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF NEW.damage IS NOT NULL THEN
        RAISE WARNING 'archive partition % in % is damaged in the lake: %', NEW.partition, @schema_literal@,
            @schema@.queue_message_one_line(NEW.damage)
            USING HINT = 'Put the file back from a copy, then run relay pipeline verify.';
    END IF;
    IF NEW.difference IS NOT NULL THEN
        RAISE WARNING 'archive partition % in % differs from the lake and is kept: %', NEW.partition, @schema_literal@,
            @schema@.queue_message_one_line(NEW.difference)
            USING HINT = 'relay pipeline verify';
    END IF;
    RETURN NULL;
END
$body$;
CREATE TRIGGER queue_message_export_damage AFTER INSERT OR UPDATE OF damage ON @schema@.queue_message_export
    FOR EACH ROW WHEN (NEW.damage IS NOT NULL AND NEW.difference IS NULL) EXECUTE FUNCTION @schema@.queue_message_export_alarm();

-- As before; what is damaged in the lake differs, also where PostgreSQL has dropped the day.
CREATE OR REPLACE VIEW @schema@.queue_message_status AS
    SELECT n.waiting, n.locked, n.delayed, greatest(n.waiting - n.locked - n.delayed, 0) AS ready, n.counted,
        greatest(extract(epoch FROM now() - CASE WHEN isfinite(o.since) THEN o.since END), 0)::double precision AS oldest_seconds,
        @schema@.queue_message_dead_open() AS dead_unacknowledged,
        (SELECT count(*) FROM @schema@.queue_message_blocked_key k WHERE k.why <> 'exchange paused') AS blocked_keys,
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

-- As before, and for how long a registered export's lake should have been seen.
CREATE OR REPLACE VIEW @schema@.queue_message_overdue AS
    WITH begun AS (SELECT min(r.started_at) AS at FROM @schema@.queue_message_relay_state r WHERE r.alive),
    due AS (
        SELECT (SELECT min(k.due_at) FROM @schema@.queue_message_keyed_row k) AS keyed,
            (SELECT min(s.next_at) FROM @schema@.queue_message_schedule s) AS schedules,
            (SELECT greatest(c.seen_at, b.at) + interval '1 hour' FROM @schema@.queue_message_clock_seen c
             WHERE c.chore = 'retention' AND b.at IS NOT NULL) AS retention,
            (SELECT greatest(c.seen_at, b.at) + interval '1 minute' FROM @schema@.queue_message_clock_seen c
             WHERE c.chore = 'sweep' AND b.at IS NOT NULL) AS sweep
        FROM begun b
    )
    -- least() passes over what is null: nothing is due. What is due may be infinite.
    SELECT
        extract(epoch FROM now() - greatest(least(d.keyed, now()), 'epoch'))::double precision AS keyed_overdue_seconds,
        extract(epoch FROM now() - greatest(least(d.schedules, now()), 'epoch'))::double precision AS schedules_overdue_seconds,
        extract(epoch FROM now() - greatest(least(d.retention, now()), 'epoch'))::double precision AS retention_overdue_seconds,
        extract(epoch FROM now() - greatest(least(d.sweep, now()), 'epoch'))::double precision AS sweep_overdue_seconds,
        l.overdue_seconds AS lake_overdue_seconds
    FROM due d, @schema@.queue_message_lake l;

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_lake;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_lake() p
    UNION ALL VALUES
        ('queue_message_relay', 'SELECT ON %1$I.queue_message_lake'),
        ('queue_message_operator', 'SELECT ON %1$I.queue_message_lake'),
        ('queue_message_etl', 'SELECT ON %1$I.queue_message_lake'),
        ('queue_message_relay', 'EXECUTE ON FUNCTION %1$I.queue_message_lake_seen'),
        ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_lake_seen'),
        ('queue_message_etl', 'EXECUTE ON FUNCTION %1$I.queue_message_lake_seen, %1$I.queue_message_export_begin, %1$I.queue_message_export_commit,
            %1$I.queue_message_export_follow, %1$I.queue_message_export_seen, %1$I.queue_message_export_unseen')
$body$;
