-- Which roles and logins hold, by grants of their own, everything that a kind of role needs: roles of an earlier prefix, and logins that
-- queue_message_grant() admitted. A membership is no such grant. A login that has less was given less on purpose, and is left out.
WITH held AS (
    SELECT 'SCHEMA' AS kind, n.oid, NULL::name AS columns, n.nspowner AS owner, x.grantee, x.privilege_type AS privilege
    FROM pg_namespace n CROSS JOIN LATERAL aclexplode(n.nspacl) AS x WHERE n.nspname = @schema_literal@
    UNION ALL
    SELECT 'TABLE', c.oid, NULL, c.relowner, x.grantee, x.privilege_type
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL aclexplode(c.relacl) AS x WHERE n.nspname = @schema_literal@
    UNION ALL
    SELECT 'TABLE', c.oid, a.attname, c.relowner, x.grantee, x.privilege_type
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_attribute a ON a.attrelid = c.oid CROSS JOIN LATERAL aclexplode(a.attacl) AS x
    WHERE n.nspname = @schema_literal@
    UNION ALL
    SELECT 'FUNCTION', p.oid, NULL, p.proowner, x.grantee, x.privilege_type
    FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace CROSS JOIN LATERAL aclexplode(p.proacl) AS x WHERE n.nspname = @schema_literal@
), needed AS (
    SELECT DISTINCT g.role, g.kind, g.oid, g.privilege, one AS columns
    FROM @schema@.queue_message_grants() g LEFT JOIN LATERAL regexp_split_to_table(g.columns, ', ') AS one ON true WHERE g.oid IS NOT NULL
), complete AS (
    SELECT n.role, h.grantee
    FROM needed n JOIN held h ON (h.kind, h.oid, h.privilege) = (n.kind, n.oid, n.privilege) AND (h.columns IS NULL OR h.columns = n.columns)
    WHERE h.grantee <> h.owner
    GROUP BY n.role, h.grantee
    HAVING count(DISTINCT (n.kind, n.oid, n.privilege, n.columns)) = (SELECT count(*) FROM needed every WHERE every.role = n.role)
)
SELECT c.role AS kind, CASE c.grantee WHEN 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(c.grantee)) END AS grantee FROM complete c
