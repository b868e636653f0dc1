-- What others put into the schema has no part in what we run: a table of somebody else's is not taken over, and triggers are named that may
-- count on a search path.

-- As before, but a view, or a table whose owner is neither who migrates nor the schema's owner, is refused: what it runs has our rights.
CREATE OR REPLACE FUNCTION @schema@.queue_message_adopt(source regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    mark text := 'Emptied into queue_message by outbox-relay; may be dropped.';
    refused bigint := 0;
    moved bigint;
    grantee text;
    stranger text;
BEGIN
    IF obj_description(source, 'pg_class') IS NOT DISTINCT FROM mark THEN
        RETURN;
    END IF;
    SELECT pg_get_userbyid(c.relowner) INTO stranger
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = source AND (c.relkind <> 'r' OR pg_get_userbyid(c.relowner) <> current_user AND NOT pg_has_role(c.relowner, n.nspowner, 'MEMBER'));
    IF stranger IS NOT NULL THEN
        RAISE EXCEPTION 'In schema "%" something of the login "%" stands in the place of queue_message or queue_message_adopted, and would act with your rights. Rename it. If it is a table of a login that you trust, make "%" its owner. Then run relay migrate again.',
            @schema_literal@, stranger, current_user;
    END IF;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', source);
    BEGIN
        EXECUTE format('INSERT INTO %I.queue_message (id, exchange, routing_key, content, options) SELECT %s FROM %s ORDER BY ctid',
                       @schema_literal@::text, @schema@.queue_message_adopted_columns(), source);
    EXCEPTION WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded THEN
        refused := @schema@.queue_message_adopt_each(source);
    END;
    EXECUTE format('DELETE FROM %s', source);
    GET DIAGNOSTICS moved = ROW_COUNT;
    FOR grantee IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END
        FROM pg_class c, aclexplode(c.relacl) a WHERE c.oid = source AND a.privilege_type = 'INSERT' AND a.grantee <> c.relowner
    LOOP
        PERFORM @schema@.queue_message_grant('queue_message_producer', grantee);
    END LOOP;
    EXECUTE format('COMMENT ON TABLE %s IS %L', source, mark);
    RAISE NOTICE 'The former queue_message is now % and empty. Messages taken over: %, of them archived as rejected: %.', source, moved, refused;
END
$body$;

-- Relays find pg_catalog alone on their search path from here on, so a trigger of the application's has to name its schema, or to pin a path.
DO $do$
DECLARE
    found record;
BEGIN
    FOR found IN
        SELECT quote_ident(t.tgname) AS name, format('%I.%I', n.nspname, c.relname) AS place, p.oid::regprocedure AS called
        FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
            JOIN pg_proc p ON p.oid = t.tgfoid JOIN pg_language l ON l.oid = p.prolang
        WHERE n.nspname = @schema_literal@ AND starts_with(c.relname, 'queue_message') AND NOT starts_with(p.proname, 'queue_message')
            AND NOT t.tgisinternal AND t.tgparentid = 0 AND l.lanname NOT IN ('c', 'internal')
            AND NOT EXISTS (SELECT FROM unnest(p.proconfig) AS one WHERE starts_with(one, 'search_path='))
        ORDER BY 1, 2
    LOOP
        RAISE NOTICE 'Relays run the trigger % of % with pg_catalog alone on the search path. If % does not write the schema of each name, run: ALTER FUNCTION % SET search_path = ...',
            found.name, found.place, found.called, found.called;
    END LOOP;
END
$do$;
