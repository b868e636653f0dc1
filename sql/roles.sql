-- Roles that are missing, and roles that somebody made since the last migration, so that they have no grants yet.
SELECT p.role, r.oid IS NULL AS missing
FROM (SELECT DISTINCT role FROM @schema@.queue_message_privileges()) AS p LEFT JOIN pg_roles r ON r.rolname = p.role
WHERE r.oid IS NULL OR NOT has_function_privilege(r.oid, format('%I.queue_message_lane_of(text)', @schema_literal@::text), 'EXECUTE')
ORDER BY p.role
