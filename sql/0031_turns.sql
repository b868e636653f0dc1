-- Maintenance tasks take turns by rows that roles cannot lock. Any login of the database may take any advisory lock, and so could stop
-- every task that asked for one.

-- A row for each task that one transaction at a time carries out. No role has a right to it, so only the functions lock its rows.
CREATE TABLE @schema@.queue_message_turn (
    task text PRIMARY KEY
);
COMMENT ON TABLE @schema@.queue_message_turn IS 'Rows that maintenance tasks lock, so that one transaction at a time carries out each of them.';

INSERT INTO @schema@.queue_message_turn (task) VALUES ('fold'), ('partitions'), ('renumber'), ('replay by id');

-- Gives this transaction the turn of a task until its end; false where another transaction has it. A patient caller waits for it.
CREATE FUNCTION @schema@.queue_message_take_turn(task text, patient boolean DEFAULT false) RETURNS boolean
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    -- The first turn of a job, or of a task whose row somebody has removed: another transaction that adds the row is waited for.
    IF NOT EXISTS (SELECT FROM @schema@.queue_message_turn t WHERE t.task = task) THEN
        INSERT INTO @schema@.queue_message_turn (task) VALUES (task) ON CONFLICT DO NOTHING;
    END IF;
    IF patient THEN
        PERFORM FROM @schema@.queue_message_turn t WHERE t.task = task FOR UPDATE;
    ELSE
        PERFORM FROM @schema@.queue_message_turn t WHERE t.task = task FOR UPDATE SKIP LOCKED;
    END IF;
    RETURN FOUND;
END
$body$;

-- One transaction at a time replays by id, so that the second one sees what the first has replayed.
CREATE FUNCTION @schema@.queue_message_lock_replays() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    SELECT @schema@.queue_message_take_turn('replay by id', patient => true)
$body$;

-- Which session each watch over dead messages is: its process, its login, and the key of an advisory lock that it drew and holds.
-- Others may read the key in pg_locks and take the lock after it, but not as the same process of the same login.
CREATE TABLE @schema@.queue_message_watch (
    handlers text PRIMARY KEY,
    pid      integer,
    login    oid,
    key      bigint
);
COMMENT ON TABLE @schema@.queue_message_watch IS 'Sessions of relay dead watch: of several with the same handlers and filter one is at work.';

-- Whether that session is there and holds its lock.
CREATE FUNCTION @schema@.queue_message_watched(pid integer, login oid, key bigint) RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT EXISTS (
        SELECT FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid AND a.datid = l.database
        WHERE l.locktype = 'advisory' AND l.mode = 'ExclusiveLock' AND l.granted AND l.objsubid = 1 AND a.datname = current_database()
          AND l.pid = queue_message_watched.pid AND a.usesysid = queue_message_watched.login
          AND (l.classid::bigint << 32 | l.objid::bigint) = queue_message_watched.key)
$body$;

-- Makes this session the watch with these handlers for as long as it lasts; false while another session is.
CREATE FUNCTION @schema@.queue_message_take_watch(handlers text) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    drawn bigint := ('x' || left(md5(gen_random_uuid()::text), 16))::bit(64)::bigint;
BEGIN
    INSERT INTO @schema@.queue_message_watch (handlers) VALUES (handlers) ON CONFLICT DO NOTHING;
    SELECT w.pid, @schema@.queue_message_watched(w.pid, w.login, w.key) AS alive INTO one
    FROM @schema@.queue_message_watch w WHERE w.handlers = handlers FOR UPDATE SKIP LOCKED;
    IF NOT FOUND OR one.alive THEN
        RETURN coalesce(one.pid = pg_backend_pid(), false);
    END IF;
    PERFORM pg_advisory_lock(drawn);
    UPDATE @schema@.queue_message_watch w SET (pid, login, key) = (
        SELECT a.pid, a.usesysid, drawn FROM pg_stat_activity a WHERE a.pid = pg_backend_pid())
    WHERE w.handlers = handlers;
    RETURN true;
END
$body$;

-- As before, but for whose turn it is.
CREATE OR REPLACE FUNCTION @schema@.queue_message_ensure_partitions(days_ahead integer DEFAULT 7, now timestamptz DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $body$
#variable_conflict use_variable
DECLARE
    today date := (@schema@.queue_message_clock(now) AT TIME ZONE 'UTC')::date;
    day date;
    partition text;
    created integer := 0;
BEGIN
    IF (days_ahead BETWEEN 0 AND 366) IS NOT TRUE THEN
        RAISE EXCEPTION 'Between 0 and 366 days can be made ahead, not %.', coalesce(days_ahead::text, 'NULL');
    END IF;
    -- One at a time; who finds another at it has nothing left to do.
    IF NOT @schema@.queue_message_take_turn('partitions') THEN
        RETURN 0;
    END IF;
    FOR day IN SELECT today + ahead FROM generate_series(-1, days_ahead) AS ahead LOOP
        partition := 'queue_message_archive_' || to_char(day, 'YYYYMMDD');
        CONTINUE WHEN to_regclass(format('%I.%I', @schema_literal@::text, partition)) IS NOT NULL;
        BEGIN
            EXECUTE format('CREATE TABLE %1$I.%2$I (LIKE %1$I.queue_message_archive_daily INCLUDING DEFAULTS)', @schema_literal@::text, partition);
            -- As for the dead: a partition inherits none.
            EXECUTE format('ALTER TABLE %I.%I REPLICA IDENTITY FULL', @schema_literal@::text, partition);
            EXECUTE format('ALTER TABLE %1$I.queue_message_archive_daily ATTACH PARTITION %1$I.%2$I FOR VALUES FROM (%3$L) TO (%4$L)',
                           @schema_literal@::text, partition, to_char(day, 'YYYY-MM-DD 00:00:00+00'), to_char(day + 1, 'YYYY-MM-DD 00:00:00+00'));
            created := created + 1;
        EXCEPTION WHEN lock_not_available THEN
            RAISE WARNING 'archive partition % was not made: its table is in use', partition;
        END;
    END LOOP;
    RETURN created;
END
$body$;

-- As before, but for whose turn it is; the row of a job stays, as its ledger does.
CREATE OR REPLACE FUNCTION @schema@.queue_message_replay_many(
    archived_from timestamptz DEFAULT NULL, archived_to timestamptz DEFAULT NULL, exchange text DEFAULT NULL, routing_key text DEFAULT NULL,
    result text DEFAULT NULL, error_code text DEFAULT NULL, again boolean DEFAULT false,
    after_archived_xid xid8 DEFAULT '0', after_xid xid8 DEFAULT '0', after_seq bigint DEFAULT 0, most integer DEFAULT 1000,
    dry_run boolean DEFAULT true, same_id boolean DEFAULT false, by text DEFAULT session_user, job text DEFAULT NULL
) RETURNS TABLE (id uuid, replayed_as uuid, archived_xid xid8, xid xid8, seq bigint, refused text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    ids uuid[];
    archived_xids xid8[];
    xids xid8[];
    seqs bigint[];
    total integer;
    made uuid[];
    refusals text[];
    first integer := 1;
    last integer;
    place integer;
BEGIN
    IF NOT dry_run AND queue_message_replay_many.job IS NOT NULL THEN
        PERFORM @schema@.queue_message_take_turn('replay ' || queue_message_replay_many.job, patient => true);
    END IF;
    SELECT array_agg(f.id), array_agg(f.archived_xid), array_agg(f.xid), array_agg(f.seq), count(*)
        INTO ids, archived_xids, xids, seqs, total
    FROM @schema@.queue_message_find(archived_from, archived_to, queue_message_replay_many.exchange, queue_message_replay_many.routing_key,
        queue_message_replay_many.result, queue_message_replay_many.error_code, again, after_archived_xid, after_xid, after_seq, most,
        queue_message_replay_many.job) f;
    made := array_fill(NULL::uuid, ARRAY[total]);
    refusals := array_fill(NULL::text, ARRAY[total]);
    last := total;
    WHILE first <= total AND NOT dry_run LOOP
        BEGIN
            place := first;
            WHILE place <= last LOOP
                IF refusals[place] IS NULL THEN
                    made[place] := @schema@.queue_message_replay_found(
                        ids[place], xids[place], seqs[place], same_id, by, queue_message_replay_many.job);
                END IF;
                place := place + 1;
            END LOOP;
            first := place;
            last := total;
        EXCEPTION WHEN OTHERS THEN
            made[place] := NULL;
            refusals[place] := @schema@.queue_message_refusal(SQLSTATE, SQLERRM);
            IF refusals[place] IS NULL THEN
                RAISE;
            END IF;
            last := place - 1;
        END;
    END LOOP;
    RETURN QUERY SELECT page.* FROM unnest(ids, made, archived_xids, xids, seqs, refusals) AS page;
END
$body$;

-- As before, but for whose turn it is.
CREATE OR REPLACE FUNCTION @schema@.queue_message_renumber(most integer DEFAULT 1000, OUT renumbered bigint, OUT more boolean)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '1s' AS $body$
#variable_conflict use_variable
BEGIN
    renumbered := 0;
    more := @schema@.queue_message_has_foreign_ids();
    IF NOT more OR NOT @schema@.queue_message_take_turn('renumber') THEN
        RETURN;
    END IF;
    IF NOT EXISTS (SELECT FROM @schema@.queue_message_cluster c
                   WHERE c.system_identifier = @schema@.queue_message_cluster_here() AND c.walked_xid IS NOT NULL) THEN
        more := @schema@.queue_message_renumber_begin(@schema@.queue_message_cluster_here());
    END IF;
    IF more THEN
        renumbered := @schema@.queue_message_renumber_step(most);
        -- Something may have come while this went on, below what was looked at.
        more := renumbered = most OR @schema@.queue_message_has_foreign_ids();
    END IF;
END
$body$;

-- As before, but for whose turn it is. Where nothing is due nothing is locked: a lock of a row is written.
CREATE OR REPLACE FUNCTION @schema@.queue_message_fold(now timestamptz DEFAULT NULL, most integer DEFAULT 10000,
    OUT folded bigint, OUT next_at timestamptz, OUT superseded bigint, OUT bundled bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    versions bigint[];
    parts bigint[];
    place text;
    named text;
BEGIN
    folded := 0;
    IF EXISTS (SELECT FROM @schema@.queue_message_keyed_row k WHERE k.due_at <= clock) AND @schema@.queue_message_take_turn('fold') THEN
        versions := ARRAY(SELECT k.seq FROM @schema@.queue_message_keyed_row k WHERE k.coalesce_key IS NOT NULL AND k.due_at <= clock
                          ORDER BY k.seq DESC LIMIT most FOR UPDATE SKIP LOCKED);
        parts := ARRAY(
            SELECT k.seq FROM @schema@.queue_message_keyed_row k
            WHERE k.bundle_key IS NOT NULL AND (k.available_at IS NULL OR k.available_at <= clock)
              AND (k.bundle_key, k.routing_key, k.exchange) IN (
                  SELECT d.bundle_key, d.routing_key, d.exchange FROM @schema@.queue_message_keyed_row d
                  WHERE d.bundle_key IS NOT NULL AND d.due_at <= clock)
            ORDER BY k.seq LIMIT most FOR UPDATE SKIP LOCKED);
        folded := cardinality(versions) + cardinality(parts);
        BEGIN
            PERFORM @schema@.queue_message_fold_versions(versions, clock);
            PERFORM @schema@.queue_message_fold_parts(parts);
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS place = TABLE_NAME, named = CONSTRAINT_NAME;
            IF @schema@.queue_message_meets_all(SQLSTATE, place, named) THEN
                RAISE;
            END IF;
            folded := folded - @schema@.queue_message_fold_each(versions, parts, clock);
        END;
    END IF;
    SELECT min(k.due_at) INTO next_at FROM @schema@.queue_message_keyed_row k;
    superseded := 0;
    bundled := 0;
    IF folded > 0 THEN
        SELECT count(*) FILTER (WHERE a.error_code = 'superseded'), count(*) FILTER (WHERE a.error_code = 'bundled') INTO superseded, bundled
        FROM @schema@.queue_message_archive a WHERE a.archived_xid = pg_current_xact_id();
    END IF;
END
$body$;

-- What this migration adds to the privileges, beside those there were.
ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_31;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_31() p
    UNION ALL VALUES
        ('queue_message_operator', 'EXECUTE ON FUNCTION %1$I.queue_message_lock_replays, %1$I.queue_message_take_watch')
$body$;
