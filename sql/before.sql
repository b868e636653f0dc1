-- Runs before the numbered migrations, each time: the schema, the record of what was applied, and one migration at a time.
-- The lock of that record is waited for; after it nothing may wait long, because every INSERT would wait behind it. No login may take that lock
-- but the owner's: the roles may only read the record.
SET LOCAL search_path = pg_catalog, pg_temp;
@unlimited@SET LOCAL lock_timeout = '10min';
DO $do$
BEGIN
    -- CREATE SCHEMA IF NOT EXISTS asks for CREATE on the database even where the schema is there.
    IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = @schema_literal@) THEN
        CREATE SCHEMA @schema@;
    END IF;
EXCEPTION WHEN duplicate_schema OR unique_violation THEN NULL; -- made meanwhile by another migration
END
$do$;
DO $do$
BEGIN
    IF to_regclass(format('%I.queue_message_migration', @schema_literal@::text)) IS NULL THEN
        CREATE TABLE @schema@.queue_message_migration (
            version    integer     PRIMARY KEY,
            name       text        NOT NULL,
            checksum   text        NOT NULL,
            applied_at timestamptz NOT NULL DEFAULT now()
        );
        COMMENT ON TABLE @schema@.queue_message_migration IS 'Migrations of outbox-relay that this schema has had.';
    END IF;
EXCEPTION WHEN duplicate_table OR unique_violation THEN NULL; -- made meanwhile by another migration
END
$do$;
DO $do$
DECLARE
    holder text;
BEGIN
    LOCK TABLE @schema@.queue_message_migration IN SHARE ROW EXCLUSIVE MODE NOWAIT;
EXCEPTION WHEN lock_not_available THEN
    SELECT format('process %s of %s', a.pid, a.usename) INTO holder
    FROM pg_locks l JOIN pg_stat_activity a USING (pid)
    WHERE l.locktype = 'relation' AND l.granted AND l.database = a.datid AND a.datname = current_database()
        AND l.relation = format('%I.queue_message_migration', @schema_literal@::text)::regclass
        AND l.mode NOT IN ('AccessShareLock', 'RowShareLock') LIMIT 1;
    RAISE NOTICE 'Waiting for % to end its migration of this schema, for ten minutes at the most.', coalesce(holder, 'another session');
    LOCK TABLE @schema@.queue_message_migration IN SHARE ROW EXCLUSIVE MODE;
END
$do$;
SET LOCAL lock_timeout = '5s';

-- after.sql gives them what the migrations add, in this same transaction: what replaced functions call must be theirs when the new bodies are.
DO $do$
BEGIN
    IF to_regprocedure(format('%I.queue_message_grants()', @schema_literal@::text)) IS NOT NULL THEN
        PERFORM set_config('relay.grantees', (SELECT jsonb_agg(to_jsonb(held)) FROM (
@grantees@) AS held)::text, true);
    END IF;
END
$do$;

-- A queue_message that is not ours is in the way. The five-column table with a uuid key and a trigger do_notify is taken over:
-- renamed here, emptied into the new table after the migrations, in this same transaction. Any other is refused.
DO $do$
DECLARE
    found regclass := to_regclass(format('%I.queue_message', @schema_literal@::text));
    refusal text;
    index_name name;
BEGIN
    IF found IS NULL OR EXISTS (SELECT FROM @schema@.queue_message_migration WHERE version = 1) THEN
        RETURN;
    END IF;
    SELECT q.refusal INTO refusal FROM (
@found@) AS q;
    IF refusal IS NOT NULL THEN
        RAISE EXCEPTION '%', refusal;
    END IF;
    ALTER TABLE @schema@.queue_message RENAME TO queue_message_adopted;
    FOR index_name IN SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = found LOOP
        EXECUTE format('ALTER INDEX %I.%I RENAME TO %I', @schema_literal@::text, index_name, left('queue_message_adopted_' || index_name, 63));
    END LOOP;
    IF EXISTS (SELECT FROM pg_trigger WHERE tgrelid = found AND tgname = 'do_notify') THEN
        DROP TRIGGER do_notify ON @schema@.queue_message_adopted;
    END IF;
    IF to_regprocedure(format('%I.queue_message_notify()', @schema_literal@::text)) IS NOT NULL THEN
        BEGIN
            DROP FUNCTION @schema@.queue_message_notify();
        EXCEPTION WHEN dependent_objects_still_exist THEN
            RAISE NOTICE 'Function queue_message_notify() stays: something else uses it.';
        END;
    END IF;
END
$do$;
