-- Runs before the numbered migrations, each time: one migration at a time, the schema, and the record of what was applied.
-- The lock is taken first and without a time limit; after it nothing may wait long, because whoever inserts would wait behind it.
SELECT pg_advisory_xact_lock(7239420177240219);
SET LOCAL lock_timeout = '5s';
SET LOCAL search_path = pg_catalog, pg_temp;

DO $do$
BEGIN
    -- CREATE SCHEMA IF NOT EXISTS asks for CREATE on the database even where the schema is there.
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_namespace WHERE nspname = @schema_literal@) THEN
        CREATE SCHEMA @schema@;
    END IF;
    IF NOT EXISTS (SELECT FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
                   WHERE n.nspname = @schema_literal@ AND c.relname = 'queue_message_migration') THEN
        CREATE TABLE @schema@.queue_message_migration (
            version    integer     PRIMARY KEY,
            name       text        NOT NULL,
            checksum   text        NOT NULL,
            applied_at timestamptz NOT NULL DEFAULT now()
        );
        COMMENT ON TABLE @schema@.queue_message_migration IS 'Migrations of outbox-relay that this schema has had.';
    END IF;
END
$do$;
