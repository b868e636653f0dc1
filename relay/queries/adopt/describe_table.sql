-- What the catalogue says of a table.
SELECT c.oid::bigint, n.nspname::text AS schema, c.relname::text AS name, c.relkind::text AS kind,
    pg_has_role(c.relowner, 'USAGE') AS owned,
    (SELECT jsonb_object_agg(a.attname, t.typname) FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
     WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped) AS columns,
    ARRAY(SELECT a.attname::text FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
          ORDER BY a.attnum) AS in_order,
    ARRAY(SELECT a.attname::text FROM pg_attribute a
          WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped AND a.attnotnull) AS not_null,
    (SELECT coalesce(jsonb_object_agg(a.attname, pg_get_serial_sequence(quote_ident(n.nspname) || '.' || quote_ident(c.relname), a.attname)), '{}')
     FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attidentity <> '' AND NOT a.attisdropped) AS identities,
    (SELECT coalesce(jsonb_object_agg(a.attname, pg_get_expr(d.adbin, d.adrelid)), '{}')
     FROM pg_attrdef d JOIN pg_attribute a ON (a.attrelid, a.attnum) = (d.adrelid, d.adnum)
     WHERE d.adrelid = c.oid AND a.attgenerated = '') AS defaults,
    ARRAY(SELECT a.attname::text FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey)
          WHERE i.indrelid = c.oid AND i.indisprimary ORDER BY a.attnum) AS key
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = %(oid)s::oid
