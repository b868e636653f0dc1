-- Runs before pending migrations that change tables: takes all of their locks, so that nothing is waited for while the tables change.
-- Each round begins with the relation that the last one waited for in vain. That wait holds nothing. The rest of a round ends before whoever waits
-- behind its locks would look for a deadlock and be the one that is refused: after deadlock_timeout.
DO $do$
DECLARE
    patience CONSTANT double precision := 0.8 * extract(epoch FROM current_setting('deadlock_timeout')::interval);
    until CONSTANT timestamptz := clock_timestamp() + interval '30 s';
    first_place oid := 0;
    place record;
    began timestamptz;
    left_ms double precision;
BEGIN
    LOOP
        BEGIN
            began := NULL;
            FOR place IN
                WITH RECURSIVE named AS (
                    SELECT coalesce(i.indrelid, c.oid) AS oid FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
                    WHERE c.relnamespace = (SELECT n.oid FROM pg_namespace n WHERE n.nspname = @schema_literal@) AND c.relname = ANY (@relations@)
                    UNION SELECT i.inhrelid FROM named JOIN pg_inherits i ON i.inhparent = named.oid
                )
                SELECT c.oid, c.oid::regclass AS name, c.relowner::regrole AS owner, c.relkind = 'v' AS is_view
                FROM named JOIN pg_class c USING (oid) WHERE c.relkind IN ('r', 'p', 'v') ORDER BY c.oid = first_place DESC, c.oid
            LOOP
                first_place := place.oid;
                left_ms := 1000 * (patience - extract(epoch FROM clock_timestamp() - began));
                PERFORM set_config('lock_timeout', CASE WHEN began IS NULL THEN '5s' ELSE greatest(1, left_ms::integer) || 'ms' END, true);
                -- Each by itself, since lock_timeout is that of one lock: LOCK TABLE would also lock partitions, and the tables under a view.
                EXECUTE format(CASE WHEN place.is_view THEN 'ALTER VIEW %s OWNER TO %s' ELSE 'LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE' END,
                               place.name, place.owner);
                began := coalesce(began, clock_timestamp());
            END LOOP;
            PERFORM set_config('lock_timeout', '5s', true);
            RETURN;
        EXCEPTION WHEN lock_not_available THEN
            IF began IS NULL OR clock_timestamp() > until THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END
$do$;
