-- Members of a role can change it: its password, settings and default privileges, and make it own objects. All outlive the session, and keep the
-- role from being dropped. The check of borders names them, and the statements that drop a role revoke and drop first what keeps it.

ALTER FUNCTION @schema@.queue_message_privileges() RENAME TO queue_message_privileges_before_59;
CREATE FUNCTION @schema@.queue_message_privileges() RETURNS TABLE (role text, privilege text)
LANGUAGE sql IMMUTABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, p.privilege FROM @schema@.queue_message_privileges_before_59() p
    UNION ALL SELECT kind, 'EXECUTE ON FUNCTION %1$I.queue_message_own_roles, %1$I.queue_message_role_passwords, %1$I.queue_message_role_defaults,
        %1$I.queue_message_role_objects, %1$I.queue_message_role_changes, %1$I.queue_message_drop_statements'
    FROM unnest(ARRAY['queue_message_relay', 'queue_message_operator', 'queue_message_etl', 'queue_message_replayer']) AS kind
$body$;

-- The roles of this outbox that exist.
CREATE FUNCTION @schema@.queue_message_own_roles() RETURNS TABLE (id oid, role text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT r.oid, r.rolname::text FROM pg_roles r
    WHERE r.rolname IN (SELECT @schema@.queue_message_role(p.role) FROM @schema@.queue_message_privileges() p)
$body$;

-- Roles of this outbox that have a password. Superusers alone may read that; for others there is no row. In plpgsql, because a query in SQL
-- needs the right even where it would read nothing.
CREATE FUNCTION @schema@.queue_message_role_passwords() RETURNS SETOF text
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp AS $body$
#variable_conflict use_variable
BEGIN
    IF has_table_privilege('pg_catalog.pg_authid', 'SELECT') THEN
        RETURN QUERY SELECT o.role FROM @schema@.queue_message_own_roles() o JOIN pg_authid a ON a.oid = o.id WHERE a.rolpassword IS NOT NULL;
    END IF;
END
$body$;

-- Default privileges of this outbox's roles in this database, and the statements that bring back those of a new role. PostgreSQL drops an entry
-- that says no more than they do. DROP OWNED would drop it too, but revoke the role's rights in the outbox besides.
CREATE FUNCTION @schema@.queue_message_role_defaults() RETURNS TABLE (role text, problem text, remedy text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH entry AS (
        SELECT o.role, d.defaclacl AS acl, d.defaclobjtype AS kind, n.nspname AS place,
            CASE d.defaclobjtype WHEN 'r' THEN 'TABLES' WHEN 'S' THEN 'SEQUENCES' WHEN 'f' THEN 'FUNCTIONS' WHEN 'T' THEN 'TYPES'
                WHEN 'n' THEN 'SCHEMAS' ELSE 'LARGE OBJECTS' END AS objects,
            format('ALTER DEFAULT PRIVILEGES FOR ROLE %I', o.role) AS statement
        FROM pg_default_acl d JOIN @schema@.queue_message_own_roles() o ON o.id = d.defaclrole LEFT JOIN pg_namespace n ON n.oid = d.defaclnamespace
    ), named AS (
        SELECT e.*, (SELECT string_agg(DISTINCT CASE x.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(x.grantee)) END, ', ')
                     FROM aclexplode(e.acl) AS x) AS grantees
        FROM entry e
    )
    SELECT n.role, 'has default privileges for ' || lower(n.objects) || coalesce(' in schema ' || quote_ident(n.place), ''), concat_ws('; ',
        n.statement || coalesce(' IN SCHEMA ' || quote_ident(n.place), '') || format(' REVOKE ALL ON %s FROM ', n.objects) || n.grantees,
        CASE WHEN n.place IS NULL THEN n.statement
            || format(' GRANT ALL ON %s TO %I%s', n.objects, n.role, CASE WHEN n.kind IN ('f', 'T') THEN ', PUBLIC' ELSE '' END) END)
    FROM named n
$body$;

-- What this outbox's roles own: large objects, other objects of this database that are not temporary (the newest first, since nothing depends on
-- them), those of the whole server, and whatever it is in
-- other databases, whose catalogues cannot be read. Where a role has rights on objects there too, a copy of the outbox may use it.
CREATE FUNCTION @schema@.queue_message_role_objects() RETURNS TABLE (role text, problem text, remedy text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH held AS (
        SELECT o.id, o.role, s.dbid, s.classid, s.objid, s.deptype, s.dbid = 0 OR coalesce(d.datname = current_database(), false) AS here,
            regexp_replace(quote_ident(d.datname) COLLATE "C", '[^ -~]', '?', 'g') AS database
        FROM pg_shdepend s JOIN @schema@.queue_message_own_roles() o ON s.refclassid = 'pg_authid'::regclass AND s.refobjid = o.id
            LEFT JOIN pg_database d ON d.oid = s.dbid
    ), object AS (
        SELECT h.role, row_number() OVER (PARTITION BY h.role ORDER BY h.objid DESC) AS place, count(*) OVER (PARTITION BY h.role) AS objects,
            CASE WHEN h.dbid = 0 THEN format('ALTER %s %s OWNER TO CURRENT_USER', upper(i.type), i.identity)
                ELSE format('DROP %s IF EXISTS %s', regexp_replace(upper(i.type), '^COMPOSITE | OBJECT$', ''), i.identity) END AS statement
        FROM held h CROSS JOIN LATERAL pg_identify_object(h.classid, h.objid, 0) AS i
        WHERE h.here AND h.deptype = 'o' AND h.classid NOT IN ('pg_default_acl'::regclass, 'pg_largeobject'::regclass)
            AND i.type IS NOT NULL AND coalesce(i.schema, '') !~ '^pg_(toast_)?temp'
    )
    SELECT h.role, format('owns %s large object%s', count(*), CASE WHEN count(*) > 1 THEN 's' END),
        format('SELECT lo_unlink(oid) FROM pg_largeobject_metadata WHERE lomowner = %L::regrole', quote_ident(h.role))
    FROM held h WHERE h.here AND h.deptype = 'o' AND h.classid = 'pg_largeobject'::regclass GROUP BY h.role
    UNION ALL
    SELECT o.role, format('owns %s object%s', o.objects, CASE WHEN o.objects > 10 THEN 's, of which 10 are named' WHEN o.objects > 1 THEN 's' END),
        string_agg(o.statement, '; ' ORDER BY o.place)
    FROM object o WHERE o.place <= 10 GROUP BY o.role, o.objects
    UNION ALL
    SELECT h.role, format('owns default privileges or objects in database %s', h.database),
        CASE WHEN bool_or(h.deptype = 'a' AND h.classid IN ('pg_class'::regclass, 'pg_proc'::regclass)) THEN 'relay check --borders there'
            ELSE format('DROP OWNED BY %I there', h.role) END
    FROM held h WHERE NOT h.here GROUP BY h.role, h.dbid, h.database HAVING bool_or(h.deptype = 'o')
$body$;

-- What members have changed of this outbox's roles, and what removes it.
CREATE FUNCTION @schema@.queue_message_role_changes() RETURNS TABLE (role text, problem text, remedy text)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT p.role, 'has a password', format('ALTER ROLE %I PASSWORD NULL', p.role) FROM @schema@.queue_message_role_passwords() AS p (role)
    UNION ALL
    SELECT o.role, 'has settings' || coalesce(' in database ' || d.name, ''),
        format('ALTER ROLE %I', o.role) || coalesce(' IN DATABASE ' || d.name, '') || ' RESET ALL'
    FROM pg_db_role_setting s JOIN @schema@.queue_message_own_roles() o ON o.id = s.setrole
        LEFT JOIN (SELECT oid, regexp_replace(quote_ident(datname) COLLATE "C", '[^ -~]', '?', 'g') AS name FROM pg_database) d ON d.oid = s.setdatabase
    UNION ALL SELECT d.role, d.problem, d.remedy FROM @schema@.queue_message_role_defaults() d
    UNION ALL SELECT b.role, b.problem, b.remedy FROM @schema@.queue_message_role_objects() b
$body$;

-- Who crosses the border of this outbox, one sentence each with what to do, and what members have changed of its roles. A login that administers both
-- sides and was admitted to neither is not named: queue_message_logins() has it.
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
    UNION ALL
    (SELECT format('The role %I %s: run %s.', c.role, c.problem, c.remedy) FROM @schema@.queue_message_role_changes() c ORDER BY c.role, c.problem)
$body$;

-- The statements that drop roles: DROP OWNED first in each database where one has rights, default privileges or large objects. A role that owns anything
-- else keeps it, and PostgreSQL refuses to drop the role: somebody has to see what it is.
CREATE FUNCTION @schema@.queue_message_drop_statements(roles text[]) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH held AS (
        SELECT quote_ident(r.rolname) AS role,
            CASE WHEN d.datname <> current_database() THEN regexp_replace(quote_ident(d.datname) COLLATE "C", '[^ -~]', '?', 'g') END AS database,
            bool_or(s.deptype = 'o' AND s.classid NOT IN ('pg_default_acl'::regclass, 'pg_largeobject'::regclass)) OVER (PARTITION BY r.oid) AS owns
        FROM pg_roles r JOIN pg_shdepend s ON s.refclassid = 'pg_authid'::regclass AND s.refobjid = r.oid LEFT JOIN pg_database d ON d.oid = s.dbid
        WHERE r.rolname = ANY (roles)
    ), step AS (
        SELECT h.database, 'DROP OWNED BY ' || string_agg(DISTINCT h.role, ', ' ORDER BY h.role) AS statement
        FROM held h WHERE NOT h.owns GROUP BY h.database
    )
    SELECT coalesce(string_agg(format('in database %s %s', s.database, s.statement), '; ' ORDER BY s.database) FILTER (WHERE s.database IS NOT NULL)
            || '; then here ', '')
        || coalesce(min(s.statement) FILTER (WHERE s.database IS NULL) || '; ', '')
        || 'DROP ROLE ' || (SELECT string_agg(quote_ident(one), ', ' ORDER BY one) FROM unnest(roles) AS one)
    FROM step s
$body$;

-- Why the roles of this outbox may not begin with a prefix, with what to do; null if they may.
CREATE OR REPLACE FUNCTION @schema@.queue_message_prefix_problem(prefix text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    SELECT CASE WHEN elsewhere IS NOT NULL
        THEN format('Roles that begin with %s have rights in %s already, and an outbox needs roles of its own: choose another RELAY_ROLE_PREFIX.',
            prefix, elsewhere)
        ELSE (SELECT format(CASE WHEN bool_and(r.own) THEN 'This outbox had roles before that are there still (%s): choose another RELAY_ROLE_PREFIX%s.'
                ELSE 'Roles are there already that are not this outbox''s (%s): choose another RELAY_ROLE_PREFIX%s.' END,
            string_agg(format('%I %s', r.role, r.problem), '; '),
            CASE WHEN bool_and(r.own) THEN ', or drop them: ' ELSE ', or drop what an outbox that is gone left behind: ' END
                || @schema@.queue_message_drop_statements(array_agg(r.role) FILTER (WHERE r.left_over)))
        FROM @schema@.queue_message_prefix_roles(prefix) r WHERE r.problem IS NOT NULL HAVING count(*) > 0) END
    FROM @schema@.queue_message_roles_elsewhere(prefix) AS elsewhere
$body$;
