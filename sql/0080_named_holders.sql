-- Sessions that may keep a partition from being made. They hold a lock on the archive's daily part, or on a table by a number that no table
-- has yet: `nextval` locks before it looks, and a CREATE TABLE that draws this number waits. A session that makes a table holds other locks on
-- it as well.
CREATE FUNCTION @schema@.queue_message_in_the_way() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT string_agg(DISTINCT CASE WHEN l.pid IS NULL THEN 'a prepared transaction'
        ELSE format('process %s of %s', l.pid, coalesce(quote_ident(a.usename), 'no login')) END, ', ')
    FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
        AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND CASE WHEN l.relation = to_regclass(format('%I.queue_message_archive_daily', @schema_literal@::text))
            THEN l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'RowExclusiveLock')
            ELSE NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = l.relation) AND NOT EXISTS (
                SELECT FROM pg_locks o WHERE o.virtualtransaction = l.virtualtransaction AND o.relation = l.relation
                    AND o.mode IN ('ShareLock', 'AccessExclusiveLock')) END
$body$;

-- As before, and names these sessions.
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
            RAISE WARNING 'archive partition % was not made, because another session has locked its table: %', partition,
                coalesce(@schema@.queue_message_in_the_way(), 'which one is not known');
        END;
    END LOOP;
    RETURN created;
END
$body$;
