-- Takes over another outbox table: five columns (id uuid, exchange, routing_key, content, options), emptied into queue_message.

-- Moves every row of the table with its id, lets who could insert there insert here, and leaves the empty table to be dropped.
-- Does nothing the second time. What can never be sent is archived rejected with the sentence, so one bad row does not keep the others.
CREATE FUNCTION @schema@.queue_message_adopt(source regclass) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    mark text := 'Emptied into queue_message by outbox-relay; may be dropped.';
    refused bigint := 0;
    moved bigint;
    grantee text;
BEGIN
    IF obj_description(source, 'pg_class') IS NOT DISTINCT FROM mark THEN
        RETURN;
    END IF;
    EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE', source);
    BEGIN
        EXECUTE format('INSERT INTO %I.queue_message (id, exchange, routing_key, content, options) SELECT %s FROM %s ORDER BY ctid',
                       @schema_literal@::text, @schema@.queue_message_adopted_columns(), source);
    EXCEPTION WHEN check_violation THEN
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

CREATE FUNCTION @schema@.queue_message_adopted_columns() RETURNS text LANGUAGE sql IMMUTABLE AS $body$
    SELECT 'id, coalesce(exchange, '''') AS exchange, coalesce(routing_key, '''') AS routing_key, '
        'coalesce(content::jsonb, ''{}'') AS content, coalesce(options::jsonb, ''{}'') AS options'
$body$;

-- Row by row, where one of them is refused; returns how many were.
CREATE FUNCTION @schema@.queue_message_adopt_each(source regclass) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    refused bigint := 0;
BEGIN
    FOR one IN EXECUTE format('SELECT %s FROM %s ORDER BY ctid', @schema@.queue_message_adopted_columns(), source) LOOP
        BEGIN
            INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, options)
            VALUES (one.id, one.exchange, one.routing_key, one.content, one.options);
        EXCEPTION WHEN check_violation THEN
            refused := refused + 1;
            INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, options, created_at, attempts,
                result, error_code, error_detail, handled_by)
            VALUES (pg_current_xact_id(), nextval(pg_get_serial_sequence(format('%I.queue_message', @schema_literal@::text), 'seq')), one.id,
                one.exchange, one.routing_key, one.content, one.options, now(), 0, 'rejected', 'refused', SQLERRM, 'relay migrate');
        END;
    END LOOP;
    RETURN refused;
END
$body$;
