-- Where settled messages live: one immutable row each, by result, and successes by day.
-- The columns of both halves are the same; the dead side is a table to look at by itself, and outlives the days.

CREATE TABLE @schema@.queue_message_archive (
    xid           xid8        NOT NULL,
    seq           bigint      NOT NULL,
    id            uuid        NOT NULL,
    exchange      text        NOT NULL,
    routing_key   text        NOT NULL,
    content       jsonb       NOT NULL,
    body          bytea,
    options       jsonb       NOT NULL,
    ordering_key  text,
    available_at  timestamptz,
    expires_at    timestamptz,
    created_at    timestamptz NOT NULL,
    attempts      integer     NOT NULL,
    replay_of     uuid,
    result        text        NOT NULL,
    error_code    text,
    error_detail  text,
    handled_by    text,
    claimed_at    timestamptz,
    published_at  timestamptz,
    confirmed_at  timestamptz,
    archived_at   timestamptz NOT NULL DEFAULT now(),
    -- Rises with commit order up to transactions still running: the safe cursor of an export.
    archived_xid  xid8        NOT NULL DEFAULT pg_current_xact_id()
) PARTITION BY LIST (result);

-- No DEFAULT partition under the days: a missing day could never be added beside one. If a day is missing, messages wait unharmed.
CREATE TABLE @schema@.queue_message_archive_daily PARTITION OF @schema@.queue_message_archive
    FOR VALUES IN ('success', 'discarded') PARTITION BY RANGE (archived_at);
CREATE TABLE @schema@.queue_message_dead PARTITION OF @schema@.queue_message_archive
    FOR VALUES IN ('rejected', 'failed', 'lock_expired');
-- Without a key nothing could be deleted while a publication FOR ALL TABLES is there. It costs where wal_level is logical: the whole row.
ALTER TABLE @schema@.queue_message_dead REPLICA IDENTITY FULL;

-- Few and time-ordered: each costs a settle one or two microseconds.
CREATE INDEX queue_message_archive_archived_xid_idx ON @schema@.queue_message_archive (archived_xid);
CREATE INDEX queue_message_archive_id_idx ON @schema@.queue_message_archive (id);
-- Holds replays only, so it costs other messages nothing; answers "was it replayed?".
CREATE INDEX queue_message_archive_replay_of_idx ON @schema@.queue_message_archive (replay_of) WHERE replay_of IS NOT NULL;
CREATE INDEX queue_message_dead_archived_at_idx ON @schema@.queue_message_dead (archived_at);

COMMENT ON TABLE @schema@.queue_message_archive IS 'One immutable row per settled message; partitioned by result and, for successes, by UTC day.';
COMMENT ON TABLE @schema@.queue_message_dead IS 'Messages archived with a result other than success: rejected, failed, lock_expired.';

CREATE FUNCTION @schema@.queue_message_archive_refuse() RETURNS trigger LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
BEGIN
    RAISE EXCEPTION 'The archive is final: % of message % is refused; replay it to send it again.', TG_OP, OLD.id
        USING ERRCODE = 'restrict_violation', TABLE = TG_TABLE_NAME;
END
$body$;

-- Row triggers, because only those are inherited by partitions. Only queue_message_delete_dead() sets relay.retention.
CREATE TRIGGER queue_message_archive_update BEFORE UPDATE ON @schema@.queue_message_archive
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_archive_refuse();
CREATE TRIGGER queue_message_archive_delete BEFORE DELETE ON @schema@.queue_message_archive
    FOR EACH ROW WHEN (current_setting('relay.retention', true) IS DISTINCT FROM 'on')
    EXECUTE FUNCTION @schema@.queue_message_archive_refuse();

-- What operators say of dead messages; the archive itself stays untouched. (xid, seq) is a message's identity there: an id may come twice.
CREATE TABLE @schema@.queue_message_dead_ack (
    xid             xid8        NOT NULL,
    seq             bigint      NOT NULL,
    acknowledged_at timestamptz NOT NULL DEFAULT now(),
    acknowledged_by text        NOT NULL DEFAULT current_user,
    note            text        NOT NULL DEFAULT '',
    PRIMARY KEY (xid, seq)
);

-- What a verification has compared: one row per partition, named without its schema. rows and checksum are PostgreSQL's own, of what was
-- archived below exported_xid. verified_at is null where both sides differ or something was added since; difference says how they differ.
CREATE TABLE @schema@.queue_message_export (
    partition    text        PRIMARY KEY,
    rows         bigint      NOT NULL,
    checksum     numeric,
    exported_xid xid8,
    verified_at  timestamptz,
    compared_at  timestamptz NOT NULL DEFAULT now(),
    difference   text,
    lake         text
);
COMMENT ON COLUMN @schema@.queue_message_export.lake IS 'The lake''s own id: what was verified against one lake says nothing of another.';

-- How far the export has got: everything archived by a transaction below exported_xid is in the lake. One row, or none.
CREATE TABLE @schema@.queue_message_export_position (
    only_one     boolean     PRIMARY KEY DEFAULT true CHECK (only_one),
    exported_xid xid8        NOT NULL,
    noted_at     timestamptz NOT NULL DEFAULT now()
);

-- One line of printable text for a log: control characters, line ends and terminal escapes become spaces.
CREATE FUNCTION @schema@.queue_message_one_line(words text, longest integer DEFAULT 255) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT left(regexp_replace(coalesce(words, ''), E'[[:cntrl:]\\x7f-\\x9f]+', ' ', 'g'), longest)
$body$;

-- Payload of a notification: the message's id and, outside the schema public, which table it is about.
CREATE FUNCTION @schema@.queue_message_payload(message uuid, relation text) RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT CASE @schema_literal@
        WHEN 'public' THEN jsonb_build_object('id', message)
        ELSE jsonb_build_object('id', message, 'table', format('%I.%I', @schema_literal@::text, relation)) END::text
$body$;

CREATE FUNCTION @schema@.queue_message_dead_alarm() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    RAISE WARNING 'dead message % in %: result %, code %, exchange "%"', NEW.id, @schema_literal@, NEW.result,
        @schema@.queue_message_one_line(NEW.error_code, 63), @schema@.queue_message_one_line(NEW.exchange)
        USING HINT = format('relay show %s', NEW.id);
    -- A full notification queue would make the settle itself fail.
    IF pg_notification_queue_usage() < 0.5 THEN
        PERFORM pg_notify('dead_message', @schema@.queue_message_payload(NEW.id, 'queue_message_dead'));
    END IF;
    RETURN NULL;
END
$body$;

CREATE TRIGGER queue_message_dead_alarm AFTER INSERT ON @schema@.queue_message_dead
    FOR EACH ROW EXECUTE FUNCTION @schema@.queue_message_dead_alarm();

-- The time that a chore goes by. Only who is the owner may name another, as tests do: a later one would drop the archive or free living
-- locks.
CREATE FUNCTION @schema@.queue_message_clock(wanted timestamptz) RETURNS timestamptz
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    -- Called with definer's rights, so current_user is the owner.
    IF wanted IS NOT NULL AND NOT pg_has_role(session_user, current_user, 'MEMBER') THEN
        RAISE EXCEPTION 'Only the owner of the schema may name another time than now: leave it out.' USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN coalesce(wanted, now());
END
$body$;

-- Makes the day partitions from yesterday to days_ahead (at most 366) from now (UTC); returns how many it made.
-- Attaching takes no lock that a settle waits for; CREATE ... PARTITION OF would. A lock not got within 200 ms is left to the next call.
CREATE FUNCTION @schema@.queue_message_ensure_partitions(days_ahead integer DEFAULT 7, now timestamptz DEFAULT NULL) RETURNS integer
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
    IF NOT pg_try_advisory_xact_lock(724017724, hashtext(@schema_literal@)) THEN
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

-- Days of the archive that are past their retention, oldest first. A partition that somebody else attached has no such name and stays.
CREATE FUNCTION @schema@.queue_message_old_days(now timestamptz DEFAULT NULL) RETURNS SETOF text
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
        @schema@.queue_message_setting_value('retention_days') AS days
    WHERE i.inhparent = format('%I.queue_message_archive_daily', @schema_literal@::text)::regclass AND days::integer > 0
      AND c.relname ~ '^queue_message_archive_[0-9]{8}$' AND c.relname < 'queue_message_archive_' || to_char(
          (coalesce(queue_message_old_days.now, pg_catalog.now()) AT TIME ZONE 'UTC')::date - days::integer, 'YYYYMMDD')
    ORDER BY c.relname
$body$;

-- Deletes a batch of old dead messages and drops at most one day that is past its retention; returns what it did and what stood in its way.
-- One day for each call, so for each transaction, and last: DROP makes every settle wait, and its lock is held until the commit.
-- Call again after 'dropped'.
CREATE FUNCTION @schema@.queue_message_retain(now timestamptz DEFAULT NULL)
RETURNS TABLE (action text, target text, messages bigint)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '200ms' AS $body$
#variable_conflict use_variable
DECLARE
    clock timestamptz := @schema@.queue_message_clock(now);
    dead_days integer := @schema@.queue_message_setting_value('dead_retention_days')::integer;
    exported boolean := @schema@.queue_message_setting_value('export_registered')::boolean;
BEGIN
    IF dead_days > 0 THEN
        action := 'deleted';
        target := 'queue_message_dead';
        messages := @schema@.queue_message_delete_dead(clock - make_interval(days => dead_days), exported);
        IF messages > 0 THEN
            RETURN NEXT;
        END IF;
    END IF;
    action := 'deleted';
    target := 'queue_message_received';
    messages := @schema@.queue_message_delete_received(clock);
    IF messages > 0 THEN
        RETURN NEXT;
    END IF;
    action := 'deleted';
    target := 'queue_message_dedup';
    messages := @schema@.queue_message_delete_keys(clock);
    IF messages > 0 THEN
        RETURN NEXT;
    END IF;
    FOR target IN SELECT o FROM @schema@.queue_message_old_days(clock) o LOOP
        SELECT d.action, d.messages INTO action, messages FROM @schema@.queue_message_drop_day(target, exported) d;
        RETURN NEXT;
        EXIT WHEN action IN ('dropped', 'busy');
    END LOOP;
END
$body$;

-- The verification of a day, or null if something was archived there by a transaction that it did not cover. Nobody changes it until the
-- commit. What stands beyond the next transaction came with another cluster's dump and was compared with all the rest.
CREATE FUNCTION @schema@.queue_message_verified(day text, OUT rows bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    bound xid8;
    newest xid8;
BEGIN
    SELECT e.rows, e.exported_xid INTO rows, bound FROM @schema@.queue_message_export e
    WHERE e.partition = day AND e.verified_at IS NOT NULL AND e.exported_xid IS NOT NULL FOR UPDATE;
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

-- Takes back what a verification said of a day that was added to since; the next verification compares it again.
CREATE FUNCTION @schema@.queue_message_unverify(day text) RETURNS void LANGUAGE sql SET search_path = pg_catalog, pg_temp AS $body$
    UPDATE @schema@.queue_message_export e SET verified_at = NULL WHERE e.partition = queue_message_unverify.day
$body$;

-- Drops one day, unless an export must be verified first or a lock is not got within 200 ms (busy). messages: counted where an export is
-- checked.
CREATE FUNCTION @schema@.queue_message_drop_day(day text, exported boolean, OUT action text, OUT messages bigint)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF exported AND current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
        RAISE EXCEPTION 'Retention with an export must see what was archived last: call queue_message_retain() in a transaction that is READ COMMITTED.'
            USING ERRCODE = 'active_sql_transaction';
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
EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
    action := 'busy';
    messages := NULL;
END
$body$;

-- Deletes up to 5,000 dead messages archived before a time, with what was said of them; with a registered export only what it has verified.
CREATE FUNCTION @schema@.queue_message_delete_dead(archived_before timestamptz, exported boolean) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    deleted bigint;
BEGIN
    -- Not a SET clause of the function: only a superuser may write one for a name that no extension has declared.
    PERFORM set_config('relay.retention', 'on', true);
    WITH old AS (
        SELECT d.ctid AS place FROM @schema@.queue_message_dead d
        WHERE d.archived_at < archived_before
          AND (NOT exported OR EXISTS (SELECT FROM @schema@.queue_message_export e
              WHERE e.partition = 'queue_message_dead' AND e.verified_at IS NOT NULL
                AND (d.archived_xid < e.exported_xid OR d.archived_xid >= pg_snapshot_xmax(pg_current_snapshot()))))
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

-- Remembers how far the export has got. Never back, unless what stands there is from the future: from before a restore or a failover.
CREATE FUNCTION @schema@.queue_message_export_progress(exported xid8) RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    INSERT INTO @schema@.queue_message_export_position AS position (exported_xid)
    VALUES (queue_message_export_progress.exported)
    ON CONFLICT ON CONSTRAINT queue_message_export_position_pkey DO UPDATE SET exported_xid = excluded.exported_xid, noted_at = now()
    WHERE excluded.exported_xid >= position.exported_xid OR position.exported_xid > pg_snapshot_xmax(pg_current_snapshot())
$body$;

-- Seconds since the first message was archived that is not in the lake yet, 0 if there is none; null where no export is registered.
-- Messages of one time stand together in the index, so the first thousand tell. What stands beyond the next transaction came with another
-- cluster's dump, and the export took it when it began.
CREATE FUNCTION @schema@.queue_message_export_lag() RETURNS double precision
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    SELECT greatest(0, extract(epoch FROM now() - (SELECT min(waiting.archived_at) FROM (
        SELECT a.archived_at FROM @schema@.queue_message_archive a
        WHERE a.archived_xid >= coalesce((SELECT p.exported_xid FROM @schema@.queue_message_export_position p), '0')
          AND a.archived_xid < pg_snapshot_xmax(pg_current_snapshot())
        ORDER BY a.archived_xid LIMIT 1000) waiting)))::double precision
    WHERE @schema@.queue_message_setting_value('export_registered')::boolean
$body$;

-- Days past their retention that stay because their export was not verified; null where no export is registered.
CREATE FUNCTION @schema@.queue_message_days_unverified() RETURNS bigint
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
    SELECT (SELECT count(*) FROM @schema@.queue_message_old_days() o WHERE NOT EXISTS (
        SELECT FROM @schema@.queue_message_export e WHERE e.partition = o AND e.verified_at IS NOT NULL))
    WHERE @schema@.queue_message_setting_value('export_registered')::boolean
$body$;

CREATE FUNCTION @schema@.queue_message_export_alarm() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    RAISE WARNING 'archive partition % in % differs from the lake and is kept: %', NEW.partition, @schema_literal@,
        @schema@.queue_message_one_line(NEW.difference)
        USING HINT = 'relay pipeline verify';
    RETURN NULL;
END
$body$;

CREATE TRIGGER queue_message_export_alarm AFTER INSERT OR UPDATE OF difference ON @schema@.queue_message_export
    FOR EACH ROW WHEN (NEW.difference IS NOT NULL) EXECUTE FUNCTION @schema@.queue_message_export_alarm();
