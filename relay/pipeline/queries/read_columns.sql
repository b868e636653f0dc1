-- The archive's columns with their types' names, in catalog order; a domain counts as its base type. The third value is what rows show that
-- are older than a column with a constant default, in the form of checksums. A partition remembers this value until it is rewritten.
WITH RECURSIVE part (id) AS (
    SELECT format('%%I.queue_message_archive', %(schema)s::text)::regclass::oid
    UNION ALL
    SELECT i.inhrelid FROM pg_inherits i JOIN part ON i.inhparent = part.id
), older (name, value) AS (
    SELECT m.attname, min((m.attmissingval::text::text[])[1])
    FROM part JOIN pg_attribute m ON m.attrelid = part.id
    WHERE m.atthasmissing GROUP BY m.attname
)
SELECT a.attname::text, kind::text,
    CASE WHEN kind = 'timestamptz' AND NOT isfinite(value::timestamptz) THEN NULL
         WHEN kind = 'timestamptz' THEN (extract(epoch FROM value::timestamptz) * 1000000)::bigint::text
         WHEN kind = 'bytea' THEN encode(sha256(value::bytea), 'hex')
         WHEN kind = 'bool' THEN value::boolean::text
         WHEN kind = 'bpchar' THEN replace(rtrim(value, ' '), '~', '~0')
         ELSE replace(value, '~', '~0') END
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_type base ON base.oid = t.typbasetype AND t.typtype = 'd'
CROSS JOIN LATERAL (SELECT coalesce(base.typname, t.typname)) AS named (kind)
LEFT JOIN older ON older.name = a.attname
WHERE a.attrelid = format('%%I.queue_message_archive', %(schema)s::text)::regclass AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
