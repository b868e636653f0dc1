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

CREATE FUNCTION @schema@.queue_message_adopted_columns() RETURNS text LANGUAGE sql IMMUTABLE AS $body$
    SELECT 'id, coalesce(exchange, '''') AS exchange, coalesce(routing_key, '''') AS routing_key, '
        'coalesce(content::jsonb, ''{}'') AS content, coalesce(options::jsonb, ''{}'') AS options'
$body$;

-- Row by row, where one of them is refused; returns how many were. Each is cast within its own block too: a column of type json may hold
-- what jsonb does not. The variables keep after an error what they had before it, so they say how far the row got.
CREATE FUNCTION @schema@.queue_message_adopt_each(source regclass) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    options jsonb;
    content jsonb;
    judged boolean;
    unprintable boolean;
    refused bigint := 0;
BEGIN
    FOR one IN EXECUTE format('SELECT * FROM %s ORDER BY ctid', source) LOOP
        options := NULL;
        content := NULL;
        judged := false;
        BEGIN
            options := coalesce(one.options::jsonb, '{}');
            content := coalesce(one.content::jsonb, '{}');
            judged := @schema@.queue_message_options_error(options) IS NULL;
            INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, options)
            VALUES (one.id, coalesce(one.exchange, ''), coalesce(one.routing_key, ''), content, options);
        EXCEPTION WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded THEN
            refused := refused + 1;
            -- All but the content as text was judged: it alone can be beyond a limit.
            unprintable := judged AND SQLSTATE LIKE '54%';
            -- What jsonb does not hold stays as text: content as the bytes that it is, options as a string, which no INSERT takes for options.
            INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, created_at, attempts,
                handled_by, result, error_code, error_detail)
            SELECT pg_current_xact_id(), nextval(pg_get_serial_sequence(format('%I.queue_message', @schema_literal@::text), 'seq')), one.id,
                coalesce(one.exchange, ''), coalesce(one.routing_key, ''),
                coalesce(content, '{}'), CASE WHEN content IS NULL THEN convert_to(one.content::text, 'UTF8') END,
                coalesce(options, to_jsonb(one.options::text)), now(), 0, 'relay migrate', why.*
            FROM (SELECT 'rejected', 'content_unprintable', 'content is larger than a gigabyte as text: write its numbers shorter.'
                  WHERE unprintable
                  UNION ALL
                  SELECT 'rejected', 'refused', @schema@.queue_message_refusal(SQLSTATE, SQLERRM)
                  WHERE NOT unprintable) AS why;
        END;
    END LOOP;
    RETURN refused;
END
$body$;
