-- The check of borders takes no temporary table for an outbox, and no large object. Every login may make these, and grant rights on them to others'
-- logins and to the roles of outboxes. The check then said that they cross a border, and how to take away their role.

-- As before, but without temporary tables.
CREATE OR REPLACE FUNCTION @schema@.queue_message_access_elsewhere() RETURNS TABLE (role oid, admitted boolean, how text)
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
            JOIN pg_namespace n ON n.oid = m.relnamespace AND n.nspname <> @schema_literal@ AND m.relpersistence <> 't'
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

-- As before, but by rights on relations, functions and schemas alone.
CREATE OR REPLACE FUNCTION @schema@.queue_message_roles_elsewhere(prefix text) RETURNS text
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp AS $body$
    WITH held AS (
        SELECT s.dbid, s.classid, s.objid
        FROM @schema@.queue_message_privileges() p JOIN pg_roles r ON r.rolname = left(prefix, 64) || '_' || substr(p.role, 15)
            JOIN pg_shdepend s ON s.refclassid = 'pg_authid'::regclass AND s.refobjid = r.oid AND s.deptype = 'a'
                AND s.classid IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_namespace'::regclass)
    ), place AS (
        SELECT 'database ' || quote_ident(d.datname) AS name
        FROM held h JOIN pg_database d ON d.oid = h.dbid WHERE d.datname <> current_database()
        UNION
        SELECT 'schema ' || quote_ident(n.nspname)
        FROM held h JOIN pg_database d ON d.oid = h.dbid AND d.datname = current_database()
            JOIN pg_class c ON h.classid = 'pg_class'::regclass AND c.oid = h.objid AND c.relname LIKE E'queue\\_message%'
                AND c.relpersistence <> 't'
            JOIN pg_namespace n ON n.oid = c.relnamespace AND n.nspname <> @schema_literal@
    ), numbered AS (
        SELECT name, row_number() OVER (ORDER BY name) AS place, count(*) OVER () AS places FROM place
    )
    SELECT regexp_replace(string_agg(name, ', ' ORDER BY name) || CASE WHEN max(places) > 3 THEN format(' and %s more', max(places) - 3) ELSE '' END COLLATE "C",
                          '[^ -~]', '?', 'g')
    FROM numbered WHERE place <= 3
$body$;
