-- Makes the roles that are missing and grants each what it needs; run by the owner after every migration. Returns the statements for a role with
-- CREATEROLE where this one may not, else null. What former roles have is taken from them in a later transaction, by `relay migrate`: sessions
-- read the changes of one commit piece by piece, and may see that a right is gone before they see what replaces it.
CREATE OR REPLACE FUNCTION @schema@.queue_message_grant_roles() RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    one text;
    statement text;
    found record;
    missing text;
BEGIN
    PERFORM @schema@.queue_message_name_roles(nullif(current_setting('relay.role_prefix', true), ''));
    -- Functions are executable by everybody when they are made.
    FOR one IN SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
               WHERE n.nspname = @schema_literal@ AND p.proname LIKE E'queue\\_message\\_%' AND pg_has_role(p.proowner, 'USAGE')
                 AND has_function_privilege('public', p.oid, 'EXECUTE') LOOP
        EXECUTE format('REVOKE EXECUTE ON FUNCTION %s FROM PUBLIC', one);
    END LOOP;
    FOR statement IN SELECT s.text FROM @schema@.queue_message_role_statements() AS s (text) LOOP
        BEGIN
            EXECUTE format('%s', statement);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL; -- made meanwhile by the migration of another database
            WHEN insufficient_privilege OR undefined_object THEN missing := concat_ws(' ', missing, statement);
        END;
    END LOOP;
    FOR found IN SELECT DISTINCT p.role AS kind, r.rolname AS own, shobj_description(r.oid, 'pg_authid') AS mark
                 FROM @schema@.queue_message_privileges() p JOIN pg_roles r ON r.rolname = @schema@.queue_message_role(p.role) ORDER BY 1 LOOP
        PERFORM @schema@.queue_message_grant(found.kind, quote_ident(found.own));
        BEGIN
            IF found.mark IS NULL THEN
                EXECUTE format('COMMENT ON ROLE %I IS %L', found.own, @schema@.queue_message_role_mark(found.kind));
            END IF;
        EXCEPTION WHEN insufficient_privilege THEN NULL; -- made by somebody else: it serves without a mark
        END;
    END LOOP;
    RETURN missing;
END
$body$;

-- An error may repeat a payload of megabytes. What is kept of its words is bounded where they are met, and no more is looked at.

-- As before, but of long words it reads only the first: control characters that stand there in a row may leave fewer than `longest`.
CREATE OR REPLACE FUNCTION @schema@.queue_message_one_line(words text, longest integer DEFAULT 255) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $body$
    SELECT left(regexp_replace(left(coalesce(words, ''), 4 * longest), E'[[:cntrl:]\\x7f-\\x9f]+', ' ', 'g'), longest)
$body$;

-- As before, but with 1,000 characters of the error at the most.
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
    IF pg_catalog.starts_with(SQLSTATE, '42') OR @schema@.queue_message_meets_all(SQLSTATE, '', '') THEN
        RAISE;
    END IF;
    attempts := NULL;
    state := SQLSTATE;
    words := pg_catalog.left(SQLERRM, 1000);
END
$body$;
CREATE OR REPLACE FUNCTION @schema@.queue_message_refused_one(message uuid, state text, words text) RETURNS jsonb
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT coalesce(jsonb_agg(jsonb_build_array(m.xid::text::bigint, m.seq, m.id, m.exchange, state, left(words, 1000))), '[]')
    FROM @schema@.queue_message m WHERE m.id = message
$body$;
