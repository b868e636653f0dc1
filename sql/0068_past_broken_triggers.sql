-- A claim goes past a message whose trigger names what is not there, or lacks a right, as it goes past one that is refused in another way.

-- As before, but class 28 is the message's own too: these statements run on a connection that is logged in, so a trigger raised it.
CREATE OR REPLACE FUNCTION @schema@.queue_message_meets_all(state text, place text, constraint_name text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT left(state, 2) IN ('08', '25', '40', '53', '55', '57', '58')
        OR state = '23514' AND starts_with(place, 'queue_message') AND coalesce(constraint_name, '') = ''
$body$;

-- As before, but for class 42. The same UPDATE of no row runs no trigger of a row: what a relay's login lacks, or its schema, fails it as well.
CREATE OR REPLACE FUNCTION @schema@.queue_message_claim_one(
    at_xid xid8, at_seq bigint, until timestamptz, token uuid, holder integer, OUT attempts integer, OUT state text, OUT words text)
LANGUAGE plpgsql AS $body$
#variable_conflict use_variable
BEGIN
    UPDATE @schema@.queue_message m
    SET lock_expires_at = until, lock_token = token, locked_by = holder, attempts = m.attempts OPERATOR(pg_catalog.+) 1
    WHERE m.xid OPERATOR(pg_catalog.=) at_xid AND m.seq OPERATOR(pg_catalog.=) at_seq
    RETURNING m.attempts INTO attempts;
    IF attempts IS NULL THEN
        state := '';
    END IF;
EXCEPTION WHEN OTHERS THEN
    IF @schema@.queue_message_meets_all(SQLSTATE, '', '') THEN
        RAISE;
    END IF;
    attempts := NULL;
    state := SQLSTATE;
    words := pg_catalog.left(SQLERRM, 1000);
    IF pg_catalog.starts_with(state, '42') THEN
        UPDATE @schema@.queue_message m
        SET lock_expires_at = until, lock_token = token, locked_by = holder, attempts = m.attempts OPERATOR(pg_catalog.+) 1
        WHERE m.xid OPERATOR(pg_catalog.=) at_xid AND m.seq OPERATOR(pg_catalog.=) at_seq AND false;
    END IF;
    BEGIN
        PERFORM pg_catalog.convert_to(words, 'UTF8');
    EXCEPTION WHEN untranslatable_character OR character_not_in_repertoire THEN
        words := pg_catalog.regexp_replace(words, E'[^\\x01-\\x7f]', '?', 'g');
    END;
END
$body$;

-- As before, and a mark with it: whoever locks the marks' table holds up every delivery, and not one of them.
CREATE OR REPLACE FUNCTION @schema@.queue_message_try() RETURNS boolean LANGUAGE plpgsql AS $body$
BEGIN
    PERFORM pg_catalog.set_config('synchronous_commit', 'on', true);
    INSERT INTO @schema@.queue_message (exchange) VALUES ('');
    INSERT INTO @schema@.queue_message_received (consumer, message_id) VALUES ('trial', pg_catalog.gen_random_uuid()::pg_catalog.text);
    RAISE EXCEPTION USING ERRCODE = 'QM000';
EXCEPTION WHEN SQLSTATE 'QM000' THEN
    RETURN true;
END
$body$;
