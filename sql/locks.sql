-- Runs before pending migrations that change tables: takes all of their locks, so that nothing is waited for while the tables change.
-- Each round begins with the relation that the last one did not get, and waits for it while it holds no other. The others are tried without a
-- wait: PostgreSQL looks for a deadlock among sessions that wait, and would refuse the application that has waited longest.
DO $do$
DECLARE
    until CONSTANT timestamptz := clock_timestamp() + interval '30 s';
    first_place oid := 0;
    place record;
    began timestamptz;
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
                LOOP
                    BEGIN
                        -- Each by itself: LOCK TABLE would also lock partitions, and the tables under a view.
                        IF NOT place.is_view AND began IS NULL THEN
                            EXECUTE format('LOCK TABLE ONLY %I.%I IN ACCESS EXCLUSIVE MODE', place.schema, place.name);
                        ELSIF NOT place.is_view THEN
                            EXECUTE format('LOCK TABLE ONLY %I.%I IN ACCESS EXCLUSIVE MODE NOWAIT', place.schema, place.name);
                        ELSIF began IS NOT NULL AND EXISTS (
                            SELECT FROM pg_locks l WHERE l.locktype = 'relation' AND l.relation = place.oid AND l.pid <> pg_backend_pid()
                                AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
                        THEN
                            RAISE lock_not_available;
                        ELSE
                            PERFORM set_config('lock_timeout', CASE WHEN began IS NULL THEN '5s' ELSE '1ms' END, true);
                            EXECUTE format('ALTER VIEW %I.%I OWNER TO %I', place.schema, place.name, place.owner);
                        END IF;
                        EXIT;
                    EXCEPTION WHEN lock_not_available THEN
                        IF began IS NULL OR clock_timestamp() > began + interval '2 s' THEN
                            RAISE;
                        END IF;
                        PERFORM pg_sleep(0.01);
                    END;
                END LOOP;
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
