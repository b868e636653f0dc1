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

-- A null is no name and no payload, and refused as any INSERT of one is: nobody wrote what the defaults would send. Of options it says that
-- there are none.
CREATE FUNCTION @schema@.queue_message_adopted_columns() RETURNS text LANGUAGE sql IMMUTABLE AS $body$
    SELECT 'id, exchange, routing_key, content::jsonb AS content, coalesce(options::jsonb, ''{}'') AS options'
$body$;

-- What is archived of content. What jsonb does not hold, a column of type json may: it stays as the bytes that it is, and goes out as those.
CREATE FUNCTION @schema@.queue_message_adopted_content(given anyelement, OUT content jsonb, OUT body bytea, OUT unprintable boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    unprintable := false;
    BEGIN
        content := coalesce(given::jsonb, '{}');
    EXCEPTION WHEN data_exception OR program_limit_exceeded THEN
        content := '{}';
        body := convert_to(given::text, 'UTF8');
    END;
    PERFORM octet_length(content::text);
EXCEPTION WHEN program_limit_exceeded THEN
    unprintable := true;
END
$body$;

-- What is archived of options: as jsonb only what can be printed too, for whoever reads the archive prints it. The rest as a string, which
-- no INSERT takes for options; so are those of a row which no replay may send.
CREATE FUNCTION @schema@.queue_message_adopted_options(given anyelement, sendable boolean) RETURNS jsonb
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    PERFORM octet_length(given::jsonb::text);
    IF NOT sendable THEN
        RETURN to_jsonb(left(coalesce(given::text, ''), 1000000));
    END IF;
    RETURN coalesce(given::jsonb, '{}');
EXCEPTION
    WHEN data_exception THEN
        RETURN to_jsonb(left(given::text, 1000000));
    WHEN program_limit_exceeded THEN
        RETURN to_jsonb('These options are beyond a limit of PostgreSQL, as more than a gigabyte as text is.'::text);
END
$body$;

-- Row by row, where one of them is refused; returns how many were. Of such a one content and options are each kept as well as can be.
CREATE FUNCTION @schema@.queue_message_adopt_each(source regclass) RETURNS bigint
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one record;
    kept record;
    nulls text;
    refused bigint := 0;
BEGIN
    FOR one IN EXECUTE format('SELECT * FROM %s ORDER BY ctid', source) LOOP
        BEGIN
            INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, options)
            VALUES (one.id, one.exchange, one.routing_key, one.content::jsonb, coalesce(one.options::jsonb, '{}'));
        EXCEPTION WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded THEN
            refused := refused + 1;
            nulls := nullif(concat_ws(', ', CASE WHEN one.exchange IS NULL THEN 'exchange' END,
                CASE WHEN one.routing_key IS NULL THEN 'routing_key' END, CASE WHEN one.content IS NULL THEN 'content' END), '');
            SELECT * INTO kept FROM @schema@.queue_message_adopted_content(one.content);
            INSERT INTO @schema@.queue_message_archive (xid, seq, id, exchange, routing_key, content, body, options, created_at, attempts,
                handled_by, result, error_code, error_detail)
            SELECT pg_current_xact_id(), nextval(pg_get_serial_sequence(format('%I.queue_message', @schema_literal@::text), 'seq')), one.id,
                coalesce(one.exchange, ''), coalesce(one.routing_key, ''), kept.content, kept.body,
                @schema@.queue_message_adopted_options(one.options, nulls IS NULL), now(), 0, 'relay migrate', why.*
            FROM (SELECT 'rejected', 'content_unprintable', 'content is larger than a gigabyte as text: write its numbers shorter.'
                  WHERE kept.unprintable
                  UNION ALL
                  SELECT 'rejected', 'refused', coalesce(
                      'null in ' || nulls || ', which no INSERT takes; kept as empty, with options as a string, so that no replay sends it.',
                      @schema@.queue_message_refusal(SQLSTATE, SQLERRM))
                  WHERE NOT kept.unprintable) AS why;
        END;
    END LOOP;
    RETURN refused;
END
$body$;
