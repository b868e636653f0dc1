-- Borders are examined beyond memberships: grants to logins and to PUBLIC, owners, attributes and predefined roles that reach every outbox.
-- A prefix is refused where its roles are there already and are somebody else's, or still have the members of an outbox that is gone.

ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_borders;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_borders() p
    UNION ALL SELECT kind, 'EXECUTE ON FUNCTION %1$I.queue_message_acl, %1$I.queue_message_access_elsewhere, %1$I.queue_message_access,
        %1$I.queue_message_logins, %1$I.queue_message_prefix_roles, %1$I.queue_message_prefix_problem'
    FROM unnest(ARRAY['queue_message_relay', 'queue_message_operator', 'queue_message_etl', 'queue_message_replayer']) AS kind
$body$;

-- Every privilege on the schema and the outbox's objects in it, the owner's included; grantee 0 is PUBLIC.
CREATE FUNCTION @schema@.queue_message_acl()
RETURNS TABLE (classid oid, objid oid, place text, object text, owner oid, grantee oid, privilege text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH place AS (
        SELECT n.* FROM pg_namespace n WHERE n.nspname = @schema_literal@
    ), relation AS (
        SELECT c.*, CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS place, CASE c.relkind WHEN 'S' THEN 's' ELSE 'r' END::"char" AS kind
        FROM pg_class c JOIN place n ON n.oid = c.relnamespace
        WHERE c.relname LIKE E'queue\\_message%' AND c.relkind IN ('r', 'p', 'v', 'm', 'f', 'S')
    ), found AS (
        SELECT 'pg_namespace'::regclass::oid AS classid, n.oid AS objid, 'SCHEMA' AS place, quote_ident(n.nspname) AS object, n.nspowner AS owner,
            coalesce(n.nspacl, acldefault('n', n.nspowner)) AS acl
        FROM place n
        UNION ALL
        SELECT 'pg_class'::regclass, c.oid, c.place, c.oid::regclass::text, c.relowner, coalesce(c.relacl, acldefault(c.kind, c.relowner))
        FROM relation c
        UNION ALL
        SELECT 'pg_class'::regclass, c.oid, c.place, c.oid::regclass::text, c.relowner, t.attacl
        FROM relation c JOIN pg_attribute t ON t.attrelid = c.oid AND t.attacl IS NOT NULL
        UNION ALL
        SELECT 'pg_proc'::regclass, f.oid, 'FUNCTION', f.oid::regprocedure::text, f.proowner, coalesce(f.proacl, acldefault('f', f.proowner))
        FROM pg_proc f JOIN place n ON n.oid = f.pronamespace WHERE f.proname LIKE E'queue\\_message%'
    )
    SELECT f.classid, f.objid, f.place, f.object, f.owner, x.grantee, x.privilege_type FROM found f CROSS JOIN LATERAL aclexplode(f.acl) AS x
$body$;

-- What roles of former prefixes still have in this schema, one object a row.
CREATE OR REPLACE FUNCTION @schema@.queue_message_former_grants() RETURNS TABLE (kind text, former text, place text, object text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT DISTINCT p.role, r.rolname::text, a.place, a.object
    FROM @schema@.queue_message_privileges() p CROSS JOIN unnest(@schema@.queue_message_former_prefixes()) AS prefix
        JOIN pg_roles r ON r.rolname = prefix || '_' || substr(p.role, 15) AND r.rolname IS DISTINCT FROM @schema@.queue_message_role(p.role)
        JOIN @schema@.queue_message_acl() a ON a.grantee = r.oid
$body$;

-- Roles with rights in other outboxes of this server, and how they got them. Other databases cannot be read: an outbox there is what roles
-- with an outbox's comment, or with the names that once served all outboxes, have rights on.
CREATE FUNCTION @schema@.queue_message_access_elsewhere() RETURNS TABLE (role oid, admitted boolean, how text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH database AS (
        SELECT d.oid, d.datdba, d.datname = current_database() AS here,
            regexp_replace(quote_ident(d.datname) COLLATE "C", '[^ -~]', '?', 'g') AS name
        FROM pg_database d
    ), kinds AS (
        SELECT DISTINCT p.role AS kind, @schema@.queue_message_role(p.role) AS own FROM @schema@.queue_message_privileges() p
    ), known AS (
        SELECT r.oid, format('member of %I (%s)', r.rolname, coalesce(substr(d.description, 15), 'of outboxes that have no roles of their own yet')) AS how
        FROM pg_roles r LEFT JOIN pg_shdescription d ON d.objoid = r.oid AND d.classoid = 'pg_authid'::regclass AND d.description LIKE 'outbox-relay: %'
        WHERE (d.objoid IS NOT NULL OR r.rolname IN (SELECT k.kind FROM kinds k)) AND r.rolname NOT IN (SELECT k.own FROM kinds k)
    ), object AS (
        SELECT DISTINCT d.oid AS dbid, d.here, s.classid, s.objid, 'database ' || d.name AS place
        FROM pg_shdepend s JOIN known k ON s.refclassid = 'pg_authid'::regclass AND s.refobjid = k.oid AND s.deptype = 'a'
            JOIN database d ON d.oid = s.dbid AND NOT d.here
        WHERE s.classid IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_namespace'::regclass)
        UNION ALL
        SELECT d.oid, d.here, o.classid, o.objid, 'schema ' || quote_ident(n.nspname)
        FROM database d JOIN pg_class m ON d.here AND m.relname = 'queue_message_migration'
            JOIN pg_namespace n ON n.oid = m.relnamespace AND n.nspname <> @schema_literal@
            CROSS JOIN LATERAL (
                SELECT 'pg_namespace'::regclass::oid, n.oid
                UNION ALL SELECT 'pg_class'::regclass, c.oid FROM pg_class c WHERE c.relnamespace = n.oid AND c.relname LIKE E'queue\\_message%'
                UNION ALL SELECT 'pg_proc'::regclass, f.oid FROM pg_proc f WHERE f.pronamespace = n.oid AND f.proname LIKE E'queue\\_message%'
            ) AS o (classid, objid)
    ), held AS (
        SELECT DISTINCT s.refobjid AS role, s.deptype = 'o' AS owns, o.place
        FROM object o JOIN pg_shdepend s ON (s.dbid, s.classid, s.objid) = (o.dbid, o.classid, o.objid) AND s.refclassid = 'pg_authid'::regclass
        WHERE s.deptype = 'o' OR s.deptype = 'a' AND s.classid <> 'pg_namespace'::regclass
    )
    SELECT h.role, NOT h.owns, CASE WHEN h.owns THEN 'owner in ' || h.place ELSE coalesce(k.how, 'rights in ' || h.place) END
    FROM held h JOIN pg_roles r ON r.oid = h.role LEFT JOIN known k ON k.oid = h.role WHERE r.rolname NOT IN (SELECT k.own FROM kinds k)
    UNION
    SELECT d.datdba, false, 'owner of database ' || d.name FROM object o JOIN database d ON d.oid = o.dbid
$body$;

-- Roles that reach this outbox or another one, and how. Admitted are those to which somebody gave rights in an outbox; the others administer it.
-- An attribute is not inherited: its role has to be set.
CREATE FUNCTION @schema@.queue_message_access() RETURNS TABLE (role oid, here boolean, there boolean, admitted boolean, by_set boolean, how text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH acl AS MATERIALIZED (
        SELECT a.*, a.place = 'SCHEMA' AND a.privilege = 'USAGE' AS looks FROM @schema@.queue_message_acl() a
    ), elsewhere AS MATERIALIZED (
        SELECT * FROM @schema@.queue_message_access_elsewhere()
    ), own AS (
        SELECT r.oid, r.rolname FROM pg_roles r WHERE r.rolname IN (SELECT @schema@.queue_message_role(p.role) FROM @schema@.queue_message_privileges() p)
    ), everywhere AS (
        SELECT r.oid, true AS by_set, word.how
        FROM pg_roles r CROSS JOIN LATERAL (VALUES
            (r.rolsuper, 'superuser'), (r.rolreplication AND NOT r.rolsuper, 'REPLICATION'),
            (r.rolcreaterole AND NOT r.rolsuper AND current_setting('server_version_num')::integer < 160000, 'CREATEROLE')) AS word (holds, how)
        WHERE word.holds
        UNION ALL
        SELECT r.oid, false, 'member of ' || r.rolname FROM pg_roles r
        WHERE r.rolname IN ('pg_read_all_data', 'pg_write_all_data', 'pg_read_server_files', 'pg_write_server_files', 'pg_execute_server_program',
                            'pg_maintain', 'pg_signal_backend')
    )
    SELECT o.oid, true, false, true, false, format('member of %I', o.rolname) FROM own o
    UNION ALL
    SELECT a.grantee, true, false, true, false,
        'rights on ' || min(a.object) || CASE WHEN count(DISTINCT a.object) > 1 THEN format(' and %s more', count(DISTINCT a.object) - 1) ELSE '' END
    FROM acl a WHERE a.grantee NOT IN (0, a.owner) AND NOT a.looks AND a.grantee NOT IN (SELECT o.oid FROM own o) GROUP BY a.grantee
    UNION ALL
    SELECT DISTINCT a.owner, true, false, false, false, 'owner of the outbox' FROM acl a WHERE a.owner <> 'pg_database_owner'::regrole
    UNION ALL
    SELECT d.datdba, true, false, false, false, 'owner of the database' FROM pg_database d WHERE d.datname = current_database()
    UNION ALL
    SELECT e.role, false, true, e.admitted, false, e.how FROM elsewhere e
    UNION ALL
    SELECT e.oid, true, EXISTS (SELECT FROM elsewhere), false, e.by_set, e.how FROM everywhere e
$body$;

-- Logins that reach this outbox or another one, by whatever memberships, and how. From PostgreSQL 16 on a membership says whether its member
-- inherits rights and whether it may set the role; who has neither, but the ADMIN OPTION, may grant itself both.
CREATE FUNCTION @schema@.queue_message_logins() RETURNS TABLE (login text, admitted boolean, here text, there text, administers text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH RECURSIVE access AS MATERIALIZED (
        SELECT * FROM @schema@.queue_message_access()
    ), membership AS MATERIALIZED (
        SELECT m.roleid, m.member, bool_or(m.admin_option) AS admin, bool_or(coalesce((to_jsonb(m) ->> 'inherit_option')::boolean, true)) AS inherits,
            bool_or(coalesce((to_jsonb(m) ->> 'set_option')::boolean, true)) AS sets
        FROM pg_auth_members m GROUP BY m.roleid, m.member
    ), acting AS (
        -- by_set: the rights of the root are reached by setting roles alone from here on, since a role that is set brings what it inherits.
        SELECT DISTINCT a.role AS root, a.role AS member, a.by_set AS attribute, a.by_set, true AS plain FROM access a
        UNION
        SELECT x.root, m.member, x.attribute, NOT m.admin AND (x.by_set OR NOT m.inherits), x.plain AND (m.sets OR m.inherits AND NOT x.by_set)
        FROM acting x JOIN membership m ON m.roleid = x.member WHERE m.admin OR m.sets OR m.inherits AND NOT x.by_set
    ), reached AS (
        SELECT who.rolname::text AS login, a.here, a.there, a.admitted AND x.plain AS admitted, a.here AND a.there AS everywhere,
            concat_ws(' ', a.how, CASE WHEN x.member <> x.root AND a.how NOT LIKE 'member of %' THEN 'as a member of ' || quote_ident(root.rolname) END,
                      CASE WHEN NOT x.plain THEN 'by ADMIN OPTION' END) AS how
        FROM acting x JOIN access a ON a.role = x.root AND a.by_set = x.attribute JOIN pg_roles root ON root.oid = x.root
            JOIN pg_roles who ON who.oid = x.member AND who.rolcanlogin
    )
    SELECT r.login, bool_or(r.admitted),
        coalesce(string_agg(DISTINCT r.how, ', ') FILTER (WHERE r.here AND NOT r.everywhere), string_agg(DISTINCT r.how, ', ') FILTER (WHERE r.here)),
        coalesce(string_agg(DISTINCT r.how, ', ') FILTER (WHERE r.there AND NOT r.everywhere), string_agg(DISTINCT r.how, ', ') FILTER (WHERE r.there)),
        string_agg(DISTINCT r.how, ', ') FILTER (WHERE r.here AND NOT r.admitted)
    FROM reached r GROUP BY r.login
$body$;

-- Who crosses the border of this outbox, one sentence each with what to do. A login that administers both sides and was admitted to neither is
-- not named: queue_message_logins() has it.
CREATE OR REPLACE FUNCTION @schema@.queue_message_crossings() RETURNS SETOF text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH open AS (
        SELECT a.place, CASE a.place WHEN 'SCHEMA' THEN 'CREATE' ELSE 'ALL' END AS privilege, string_agg(DISTINCT a.object, ', ') AS objects
        FROM @schema@.queue_message_acl() a WHERE a.grantee = 0 AND NOT (a.place = 'SCHEMA' AND a.privilege = 'USAGE') GROUP BY a.place
    ), dismissal AS (
        SELECT who.rolname AS login, string_agg(DISTINCT format('relay revoke %s %s', substr(p.role, 15),
            '''' || replace(who.rolname, '''', '''"''"''') || ''''), '; ') AS commands
        FROM @schema@.queue_message_privileges() p JOIN pg_roles r ON r.rolname = @schema@.queue_message_role(p.role)
            JOIN pg_auth_members m ON m.roleid = r.oid JOIN pg_roles who ON who.oid = m.member GROUP BY who.rolname
    )
    (SELECT format('The login %I reaches this outbox (%s) and another one (%s): give each outbox a login of its own, and take this one back on one '
        'side%s.', l.login, l.here, l.there, ' (here: ' || d.commands || ')')
    FROM @schema@.queue_message_logins() l LEFT JOIN dismissal d ON d.login = l.login
    WHERE l.admitted AND l.here IS NOT NULL AND l.there IS NOT NULL ORDER BY l.login)
    UNION ALL
    SELECT 'Every login of this database reaches the outbox by rights of PUBLIC: run '
        || string_agg(format('REVOKE %s ON %s %s FROM PUBLIC', o.privilege, o.place, o.objects), '; ' ORDER BY o.place) || ' as the owner.'
    FROM open o HAVING count(*) > 0
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

-- Roles of a prefix that this outbox would take over: their members, and why it may not have them, null if it may. Not listed are former roles
-- with rights here, whose members gain nothing. Roles that somebody made for this outbox, empty and with members, are taken.
CREATE FUNCTION @schema@.queue_message_prefix_roles(prefix text) RETURNS TABLE (role text, left_over boolean, members text, problem text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH found AS (
        SELECT DISTINCT r.*, coalesce(shobj_description(r.oid, 'pg_authid') LIKE 'outbox-relay: %', false) AS marked
        FROM @schema@.queue_message_privileges() p JOIN pg_roles r ON r.rolname = prefix || '_' || substr(p.role, 15)
        WHERE r.rolname NOT IN (SELECT g.former FROM @schema@.queue_message_former_grants() g WHERE g.place <> 'SCHEMA')
    ), membership AS (
        SELECT m.roleid, m.member FROM pg_auth_members m WHERE coalesce((to_jsonb(m) ->> 'inherit_option')::boolean OR (to_jsonb(m) ->> 'set_option')::boolean, true)
    ), counted AS (
        SELECT f.*, (SELECT string_agg(DISTINCT quote_ident(who.rolname), ', ') FROM membership m JOIN pg_roles who ON who.oid = m.member
                     WHERE m.roleid = f.oid AND who.rolname <> current_user AND who.oid NOT IN (SELECT o.oid FROM found o)) AS members
        FROM found f
    )
    SELECT c.rolname, c.marked AND NOT c.rolcanlogin, c.members, CASE
        WHEN c.rolcanlogin THEN 'can log in'
        WHEN c.rolsuper OR c.rolcreaterole OR c.rolcreatedb OR c.rolreplication OR c.rolbypassrls THEN 'has attributes'
        WHEN EXISTS (SELECT FROM membership m WHERE m.member = c.oid AND m.roleid NOT IN (SELECT o.oid FROM found o)) THEN 'is a member of other roles'
        WHEN EXISTS (SELECT FROM pg_shdepend s WHERE s.refclassid = 'pg_authid'::regclass AND s.refobjid = c.oid AND (s.deptype = 'o'
            OR s.deptype = 'a' AND s.dbid <> 0 AND s.classid <> 'pg_namespace'::regclass)) THEN 'has rights of its own'
        WHEN c.marked AND c.members IS NOT NULL THEN 'has members of an outbox that is gone: ' || c.members END
    FROM counted c ORDER BY c.rolname
$body$;

-- Why the roles of this outbox may not begin with a prefix, with what to do; null if they may.
CREATE FUNCTION @schema@.queue_message_prefix_problem(prefix text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT CASE WHEN elsewhere IS NOT NULL
        THEN format('Roles that begin with %s have rights in %s already, and an outbox needs roles of its own: choose another RELAY_ROLE_PREFIX.',
            prefix, elsewhere)
        ELSE (SELECT format('Roles are there already that are not this outbox''s (%s): choose another RELAY_ROLE_PREFIX%s.',
            string_agg(format('%I %s', r.role, r.problem), '; '),
            ', or drop what an outbox that is gone left behind: DROP ROLE ' || string_agg(quote_ident(r.role), ', ') FILTER (WHERE r.left_over))
        FROM @schema@.queue_message_prefix_roles(prefix) r WHERE r.problem IS NOT NULL HAVING count(*) > 0) END
    FROM @schema@.queue_message_roles_elsewhere(prefix) AS elsewhere
$body$;

-- Fixes the prefix of this outbox's roles: derived when they are first made, or as RELAY_ROLE_PREFIX says, then and later. Former prefixes are
-- kept, since the rights and members of their roles are moved to the new ones; the first was that of all outboxes.
CREATE OR REPLACE FUNCTION @schema@.queue_message_name_roles(wanted text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
DECLARE
    present text := left(@schema@.queue_message_role(''), -1);
    former text[] := @schema@.queue_message_former_prefixes() || present;
    prefix text := coalesce(wanted, present, @schema@.queue_message_derived_prefix());
    problem text;
    found record;
BEGIN
    IF prefix = present THEN
        RETURN;
    END IF;
    problem := @schema@.queue_message_prefix_problem(prefix);
    IF prefix IS NULL THEN
        RAISE EXCEPTION 'Roles that begin with the names of database and schema have rights in other outboxes: choose a RELAY_ROLE_PREFIX.';
    END IF;
    IF problem IS NOT NULL THEN
        RAISE EXCEPTION '%', problem;
    END IF;
    FOR found IN SELECT * FROM @schema@.queue_message_prefix_roles(prefix) LOOP
        IF found.members IS NOT NULL THEN
            RAISE NOTICE 'The role % was there already, and its members are admitted: %.', quote_ident(found.role), found.members;
        END IF;
        BEGIN
            IF found.left_over THEN
                EXECUTE format('COMMENT ON ROLE %I IS NULL', found.role); -- queue_message_grant_roles() writes this outbox's
            END IF;
        EXCEPTION WHEN insufficient_privilege THEN NULL; -- it serves with the old mark
        END;
    END LOOP;
    EXECUTE format('CREATE OR REPLACE FUNCTION %I.queue_message_role(kind text) RETURNS text
        LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS %L', @schema_literal@,
        format('SELECT %L || regexp_replace(kind, %L, %L)', prefix || '_', '^queue_message_', ''));
    EXECUTE format('CREATE OR REPLACE FUNCTION %I.queue_message_former_prefixes() RETURNS text[]
        LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS %L', @schema_literal@,
        format('SELECT %L::text[]', array_remove(array_remove(former, prefix), NULL)));
END
$body$;
