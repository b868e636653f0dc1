-- Runs after the commit, each time, in a transaction of its own; where pg_cron is not here, it does nothing.
-- pg_cron's launcher forgets to read its jobs again when a migration has signalled more changes than PostgreSQL keeps for it (4,096).
-- It looks once a second; after that it hears of these jobs alone.
DO $do$
BEGIN
    PERFORM pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true);
    IF NOT EXISTS (SELECT FROM pg_extension WHERE extname = 'pg_cron') THEN
        RETURN;
    END IF;
    IF EXISTS (SELECT FROM @schema@.queue_message_migration WHERE applied_at > now() - interval '10 seconds') THEN
        PERFORM pg_sleep(2);
    END IF;
    BEGIN
        PERFORM @schema@.queue_message_cron();
    EXCEPTION WHEN insufficient_privilege OR undefined_function OR undefined_table THEN
        RAISE NOTICE 'pg_cron is installed, but its jobs could not be scheduled (%); running relays do the same work.', SQLERRM;
    END;
END
$do$;
