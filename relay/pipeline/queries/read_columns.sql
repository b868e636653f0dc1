-- The archive's columns with their types' names, in catalog order; a domain counts as what it stands for.
SELECT a.attname::text, coalesce(base.typname, t.typname)::text
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type base ON base.oid = t.typbasetype AND t.typtype = 'd'
WHERE a.attrelid = format('%%I.queue_message_archive', %(schema)s::text)::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
