-- What the roles lack: a role itself, or something that a migration grants it. What comes first for a role comes first here.
SELECT @schema@.queue_message_role(g.role) AS role, r.oid IS NULL AS missing, format('%s%s on %s %s', g.privilege, ' (' || g.columns || ')', lower(g.kind), g.object) AS lacks
FROM @schema@.queue_message_grants() g LEFT JOIN pg_roles r ON r.rolname = @schema@.queue_message_role(g.role)
WHERE r.oid IS NULL OR NOT CASE
    WHEN g.kind = 'SCHEMA' THEN has_schema_privilege(r.oid, g.oid, g.privilege)
    WHEN g.kind = 'FUNCTION' THEN has_function_privilege(r.oid, g.oid, g.privilege)
    WHEN g.columns IS NULL THEN has_table_privilege(r.oid, g.oid, g.privilege)
    ELSE (SELECT bool_and(has_column_privilege(r.oid, g.oid, name, g.privilege)) FROM regexp_split_to_table(g.columns, ', ') AS name) END
ORDER BY g.role, g.kind <> 'SCHEMA', g.kind DESC, g.object, g.privilege
