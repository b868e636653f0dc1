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
                SELECT c.oid, n.nspname AS schema, c.relname AS name, pg_get_userbyid(c.relowner) AS owner, c.relkind = 'v' AS is_view
                FROM named JOIN pg_class c USING (oid) JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE c.relkind IN ('r', 'p', 'v') ORDER BY c.oid = first_place DESC, c.oid
            LOOP
                first_place := place.oid;
                left_ms := 1000 * (patience - extract(epoch FROM clock_timestamp() - began));
                PERFORM set_config('lock_timeout', CASE WHEN began IS NULL THEN '5s' ELSE greatest(1, left_ms::integer) || 'ms' END, true);
                -- Each by itself, since lock_timeout is that of one lock: LOCK TABLE would also lock partitions, and the tables under a view.
                IF place.is_view THEN
                    EXECUTE format('ALTER VIEW %I.%I OWNER TO %I', place.schema, place.name, place.owner);
                ELSE
                    EXECUTE format('LOCK TABLE ONLY %I.%I IN ACCESS EXCLUSIVE MODE', place.schema, place.name);
                END IF;
                began := coalesce(began, clock_timestamp());
            END LOOP;
            PERFORM set_config('lock_timeout', '5s', true);
            RETURN;
        EXCEPTION WHEN lock_not_available OR undefined_table THEN
            -- A day of the archive may have been dropped since it was listed.
            IF clock_timestamp() > until OR began IS NULL AND SQLSTATE = '55P03' THEN
                RAISE;
            END IF;
        END;
    END LOOP;
END
$do$;
