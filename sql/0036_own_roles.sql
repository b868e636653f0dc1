-- Roles belong to one outbox. The seven names of queue_message_privileges() are kinds from here on, and queue_message_role() names this outbox's role
-- of a kind. The prefix of the names is part of that function's body: a dump, a template's copy and a renamed database keep the roles that
-- their grants name.

ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_own_roles;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_own_roles() p
    UNION ALL SELECT kind, 'EXECUTE ON FUNCTION %1$I.queue_message_crossings, %1$I.queue_message_roles_elsewhere, %1$I.queue_message_former_grants,
        %1$I.queue_message_role_statements, %1$I.queue_message_role_mark'
    FROM unnest(ARRAY['queue_message_relay', 'queue_message_operator', 'queue_message_etl', 'queue_message_replayer']) AS kind
$body$;

-- This outbox's role of a kind, which may also be written without its beginning; and the prefixes that its roles had before.
-- queue_message_name_roles() writes the bodies.
CREATE FUNCTION @schema@.queue_message_role(kind text) RETURNS text
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$ SELECT NULL::text $body$;
CREATE FUNCTION @schema@.queue_message_former_prefixes() RETURNS text[]
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$ SELECT '{queue_message}'::text[] $body$;

-- The comment of a role, by which other outboxes recognise it. ASCII, because databases of other encodings read it too.
CREATE FUNCTION @schema@.queue_message_role_mark(kind text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT regexp_replace(format('outbox-relay: %s of schema %I in database %I', substr(kind, 15), @schema_literal@, current_database()) COLLATE "C",
                          '[^ -~]', '?', 'g')
$body$;

-- Other databases, and other schemas of this one with an outbox, where the roles of a prefix have rights; null if there are none.
CREATE FUNCTION @schema@.queue_message_roles_elsewhere(prefix text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH held AS (
        SELECT s.dbid, s.classid, s.objid
        FROM @schema@.queue_message_privileges() p JOIN pg_roles r ON r.rolname = prefix || '_' || substr(p.role, 15)
            JOIN pg_shdepend s ON s.refclassid = 'pg_authid'::regclass AND s.refobjid = r.oid AND s.deptype = 'a'
    ), place AS (
        SELECT 'database ' || quote_ident(d.datname) AS name
        FROM held h JOIN pg_database d ON d.oid = h.dbid WHERE d.datname <> current_database()
        UNION
        SELECT 'schema ' || quote_ident(n.nspname)
        FROM held h JOIN pg_database d ON d.oid = h.dbid AND d.datname = current_database()
            JOIN pg_class c ON h.classid = 'pg_class'::regclass AND c.oid = h.objid AND c.relname LIKE E'queue\\_message%'
            JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname <> @schema_literal@
    ), numbered AS (
        SELECT name, row_number() OVER (ORDER BY name) AS place, count(*) OVER () AS places FROM place
    )
    SELECT regexp_replace(string_agg(name, ', ' ORDER BY name) || CASE WHEN max(places) > 3 THEN format(' and %s more', max(places) - 3) ELSE '' END COLLATE "C",
                          '[^ -~]', '?', 'g')
    FROM numbered WHERE place <= 3
$body$;

-- The prefix for an outbox that was given none: the names of database and schema where they are plain and free. Else letters that are not plain
-- become _, and a digest of the names follows two of them, which plain names never hold. A database that took the name of another, renamed
-- one finds its roles in use there, so the digest of its number comes in.
CREATE FUNCTION @schema@.queue_message_derived_prefix() RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH names AS (
        SELECT d.oid, format('%I.%I', d.datname, @schema_literal@) AS full_name,
            format('queue_message_%s_%s', d.datname, @schema_literal@) COLLATE "C" AS plain,
            (d.datname::text || @schema_literal@) COLLATE "C" ~ '^[a-z0-9]+$' AS is_plain
        FROM pg_database d WHERE d.datname = current_database()
    ), readable AS (
        SELECT *, left(regexp_replace(lower(plain), '[^a-z0-9]', '_', 'g'), 44) || '__' AS beginning FROM names
    ), candidate AS (
        SELECT 1 AS rank, plain AS prefix FROM readable WHERE is_plain AND length(plain) <= 54
        UNION ALL SELECT 2, beginning || left(md5(full_name), 8) FROM readable
        UNION ALL SELECT 3, beginning || left(md5(format('%s %s', full_name, oid)), 8) FROM readable
    )
    SELECT prefix FROM candidate WHERE @schema@.queue_message_roles_elsewhere(prefix) IS NULL ORDER BY rank LIMIT 1
$body$;

-- Fixes the prefix of this outbox's roles: derived when they are first made, or as RELAY_ROLE_PREFIX says, then and later. Former prefixes are
-- kept, since the rights and members of their roles are moved to the new ones; the first was that of all outboxes.
CREATE FUNCTION @schema@.queue_message_name_roles(wanted text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    present text := left(@schema@.queue_message_role(''), -1);
    former text[] := @schema@.queue_message_former_prefixes() || present;
    prefix text := coalesce(wanted, present, @schema@.queue_message_derived_prefix());
    elsewhere text;
BEGIN
    IF prefix = present THEN
        RETURN;
    END IF;
    elsewhere := @schema@.queue_message_roles_elsewhere(prefix);
    IF elsewhere IS NOT NULL OR prefix IS NULL THEN
        RAISE EXCEPTION 'Roles that begin with % have rights in % already, and an outbox needs roles of its own: choose another RELAY_ROLE_PREFIX.',
            coalesce(prefix, 'the names of database and schema'), coalesce(elsewhere, 'other outboxes');
    END IF;
    EXECUTE format('CREATE OR REPLACE FUNCTION %I.queue_message_role(kind text) RETURNS text
        LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS %L', @schema_literal@,
        format('SELECT %L || regexp_replace(kind, %L, %L)', prefix || '_', '^queue_message_', ''));
    EXECUTE format('CREATE OR REPLACE FUNCTION %I.queue_message_former_prefixes() RETURNS text[]
        LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS %L', @schema_literal@,
        format('SELECT %L::text[]', array_remove(array_remove(former, prefix), NULL)));
END
$body$;

-- What roles of former prefixes still have in this schema, one object a row.
CREATE FUNCTION @schema@.queue_message_former_grants() RETURNS TABLE (kind text, former text, place text, object text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH former AS (
        SELECT DISTINCT r.oid, p.role AS kind, r.rolname::text AS name
        FROM @schema@.queue_message_privileges() p CROSS JOIN unnest(@schema@.queue_message_former_prefixes()) AS prefix
            JOIN pg_roles r ON r.rolname = prefix || '_' || substr(p.role, 15) AND r.rolname <> @schema@.queue_message_role(p.role)
    ), acl AS (
        SELECT 'SCHEMA' AS place, quote_ident(n.nspname) AS object, n.nspacl AS acl FROM pg_namespace n WHERE n.nspname = @schema_literal@
        UNION ALL
        SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, c.oid::regclass::text, c.relacl
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = @schema_literal@ WHERE c.relname LIKE E'queue\\_message%'
        UNION ALL
        SELECT 'TABLE', c.oid::regclass::text, t.attacl
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname = @schema_literal@ JOIN pg_attribute t ON t.attrelid = c.oid
        WHERE c.relname LIKE E'queue\\_message%' AND t.attacl IS NOT NULL
        UNION ALL
        SELECT 'FUNCTION', f.oid::regprocedure::text, f.proacl
        FROM pg_proc f JOIN pg_namespace n ON n.oid = f.pronamespace AND n.nspname = @schema_literal@ WHERE f.proname LIKE E'queue\\_message%'
    )
    SELECT DISTINCT f.kind, f.name, a.place, a.object FROM acl a CROSS JOIN LATERAL aclexplode(a.acl) AS x JOIN former f ON f.oid = x.grantee
$body$;

-- What a login with CREATEROLE has to run: this outbox's roles, and as their members those of the former roles that still have rights here.
CREATE FUNCTION @schema@.queue_message_role_statements() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH kinds AS (
        SELECT DISTINCT p.role AS kind, @schema@.queue_message_role(p.role) AS own FROM @schema@.queue_message_privileges() p
    ), former AS (
        SELECT DISTINCT k.own, g.former FROM @schema@.queue_message_former_grants() g JOIN kinds k ON k.kind = g.kind
    ), membership AS (
        -- From PostgreSQL 16 on a membership says more, and there is one for each grantor.
        SELECT f.own, coalesce(other.own, member.rolname) AS member, bool_or(m.admin_option) AS admin,
            bool_or((to_jsonb(m) ->> 'inherit_option')::boolean) AS inherits, bool_or((to_jsonb(m) ->> 'set_option')::boolean) AS sets
        FROM former f JOIN pg_roles r ON r.rolname = f.former JOIN pg_auth_members m ON m.roleid = r.oid
            JOIN pg_roles member ON member.oid = m.member LEFT JOIN former other ON other.former = member.rolname
        WHERE member.rolname <> current_user
        GROUP BY f.own, coalesce(other.own, member.rolname)
    ), todo AS (
        SELECT 1 AS step, k.own, NULL AS member, format('CREATE ROLE %I NOLOGIN; COMMENT ON ROLE %1$I IS %L;', k.own,
            @schema@.queue_message_role_mark(k.kind)) AS statement
        FROM kinds k WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = k.own)
        UNION ALL
        SELECT 2, f.own, f.member, format('GRANT %I TO %I%s;', f.own, f.member,
            CASE WHEN f.inherits IS NOT NULL THEN format(' WITH ADMIN %s, INHERIT %s, SET %s', f.admin::text, f.inherits::text, f.sets::text)
                WHEN f.admin THEN ' WITH ADMIN OPTION' ELSE '' END)
        FROM membership f WHERE NOT EXISTS (
            SELECT FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid JOIN pg_roles member ON member.oid = m.member
            WHERE r.rolname = f.own AND member.rolname = f.member AND (m.admin_option OR NOT f.admin))
    )
    SELECT t.statement FROM todo t ORDER BY t.step, t.own, t.member
$body$;

-- Makes the roles that are missing, grants each what it needs, and takes from former roles what they have here once their members are members of
-- the new ones; run by the owner after every migration. Returns the statements for a role with CREATEROLE where this one may not, else null.
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
    IF missing IS NULL THEN
        FOR found IN SELECT * FROM @schema@.queue_message_former_grants() LOOP
            EXECUTE format('REVOKE ALL ON %s %s FROM %I', found.place, found.object, found.former);
        END LOOP;
    END IF;
    RETURN missing;
END
$body$;

-- This outbox's role of a kind, which is one of queue_message_privileges() with or without its beginning.
CREATE FUNCTION @schema@.queue_message_role_of(kind text) RETURNS text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    kinds text[] := ARRAY(SELECT DISTINCT substr(p.role, 15) FROM @schema@.queue_message_privileges() p ORDER BY 1);
BEGIN
    IF regexp_replace(kind, '^queue_message_', '') = ANY (kinds) THEN
        RETURN @schema@.queue_message_role(kind);
    END IF;
    RAISE EXCEPTION 'There is no role of the kind %: name one of %.', quote_literal(kind), array_to_string(kinds, ', ')
        USING ERRCODE = 'invalid_parameter_value';
END
$body$;

-- Makes a login a member of this outbox's role of a kind; returns the role.
CREATE FUNCTION @schema@.queue_message_admit(kind text, login text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    own text := @schema@.queue_message_role_of(kind);
BEGIN
    EXECUTE format('GRANT %I TO %I', own, login);
    RETURN own;
END
$body$;

-- Takes that back; returns the role, null if the login was no member of it. From PostgreSQL 16 on each grantor's membership counts by itself.
CREATE FUNCTION @schema@.queue_message_dismiss(kind text, login text) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    own text := @schema@.queue_message_role_of(kind);
    grantors text[] := ARRAY(
        SELECT pg_get_userbyid(m.grantor)::text FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid AND r.rolname = own
        WHERE m.member = quote_ident(login)::regrole);
    grantor text;
BEGIN
    FOREACH grantor IN ARRAY grantors LOOP
        IF current_setting('server_version_num')::integer >= 160000 THEN
            EXECUTE format('REVOKE %I FROM %I GRANTED BY %I', own, login, grantor);
        ELSE
            EXECUTE format('REVOKE %I FROM %I', own, login);
        END IF;
    END LOOP;
    RETURN CASE WHEN grantors <> '{}' THEN own END;
END
$body$;

-- Who crosses the border of this outbox, one sentence each with what to do: logins that are members of roles of two outboxes, roles of this one
-- that have rights elsewhere, and former roles that still have rights here. Superusers cross every border and are left out, as are
-- memberships that only let a role be granted.
CREATE FUNCTION @schema@.queue_message_crossings() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH RECURSIVE kinds AS (
        SELECT DISTINCT p.role AS kind, @schema@.queue_message_role(p.role) AS own FROM @schema@.queue_message_privileges() p
    ), roots AS (
        SELECT r.oid, true AS ours, r.rolname::text AS name, substr(k.kind, 15) AS kind FROM kinds k JOIN pg_roles r ON r.rolname = k.own
        UNION ALL
        SELECT r.oid, false, format('%s (%s)', r.rolname, substr(d.description, 15)), NULL
        FROM pg_shdescription d JOIN pg_roles r ON r.oid = d.objoid
        WHERE d.classoid = 'pg_authid'::regclass AND d.description LIKE 'outbox-relay: %' AND r.rolname NOT IN (SELECT k.own FROM kinds k)
        UNION ALL
        SELECT r.oid, false, format('%s (of outboxes that have no roles of their own yet)', r.rolname), NULL
        FROM kinds k JOIN pg_roles r ON r.rolname = k.kind AND r.rolname <> k.own
        WHERE coalesce(shobj_description(r.oid, 'pg_authid'), '') NOT LIKE 'outbox-relay: %' AND EXISTS (
            SELECT FROM pg_shdepend s WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = r.oid AND s.deptype = 'a'
                AND s.dbid <> (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
    ), members AS (
        SELECT r.oid AS root, r.oid AS member FROM roots r
        UNION
        SELECT x.root, m.member FROM members x JOIN pg_auth_members m ON m.roleid = x.member
        WHERE coalesce((to_jsonb(m) ->> 'inherit_option')::boolean OR (to_jsonb(m) ->> 'set_option')::boolean, true)
    ), login AS (
        SELECT who.rolname AS name, min(r.kind) FILTER (WHERE r.ours) AS kind,
            string_agg(r.name, ', ' ORDER BY r.name) FILTER (WHERE r.ours) AS here,
            string_agg(r.name, ', ' ORDER BY r.name) FILTER (WHERE NOT r.ours) AS there
        FROM members x JOIN roots r ON r.oid = x.root JOIN pg_roles who ON who.oid = x.member
        WHERE who.rolcanlogin AND NOT who.rolsuper GROUP BY who.rolname
    )
    (SELECT format('The login %I is a member of %s and of %s: give each outbox a login of its own, and take this one back here (relay revoke %s %1$s) '
        'or there.', l.name, l.here, l.there, l.kind)
    FROM login l WHERE l.here IS NOT NULL AND l.there IS NOT NULL ORDER BY l.name)
    UNION ALL
    SELECT format('The roles of this outbox, whose names begin with %s, have rights in %s too: run relay migrate in one of the two with another '
        'RELAY_ROLE_PREFIX.', prefix, @schema@.queue_message_roles_elsewhere(prefix))
    FROM left(@schema@.queue_message_role(''), -1) AS prefix WHERE @schema@.queue_message_roles_elsewhere(prefix) IS NOT NULL
    UNION ALL
    (SELECT format('The role %I still has rights here, and members: %s. Let somebody with CREATEROLE run relay migrate, or what it prints.',
        g.former, string_agg(DISTINCT quote_ident(who.rolname), ', '))
    FROM (SELECT DISTINCT x.former FROM @schema@.queue_message_former_grants() x) g JOIN pg_roles r ON r.rolname = g.former
        JOIN pg_auth_members m ON m.roleid = r.oid JOIN pg_roles who ON who.oid = m.member GROUP BY g.former ORDER BY g.former)
$body$;
