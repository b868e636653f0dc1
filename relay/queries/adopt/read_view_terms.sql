-- What a view in the place of a table would show or refuse otherwise than the table does.
SELECT c.relrowsecurity AS guarded, quote_ident(pg_get_userbyid(c.relowner)) AS owner,
    EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attgenerated <> '' AND NOT a.attisdropped) AS generated,
    has_schema_privilege(c.relowner, queue.relnamespace, 'USAGE') AND has_column_privilege(c.relowner, queue.oid, 'id', 'SELECT')
        AND has_column_privilege(c.relowner, queue.oid, 'xid', 'SELECT') AS sees
FROM pg_class c, pg_class queue WHERE c.oid = to_regclass(%(name)s) AND queue.oid = to_regclass(%(queue)s)
