-- What is in the place of queue_message before the first migration: why it is refused, null where it is taken over. No row: nothing.
-- Taken over is a table of five columns with a uuid key.
SELECT CASE WHEN there.kind <> 'r' OR NOT there.keyed
        OR replace(there.shape, ' jsonb', ' json') <> 'content json, exchange text, id uuid, options json, routing_key text'
    THEN format('There is a queue_message in schema "%s" that is not the relay''s (%s): rename it, or name another schema in RELAY_SCHEMA.',
        @schema_literal@::text, there.shape) END AS refusal
FROM (
    SELECT c.relkind AS kind, (
        SELECT string_agg(a.attname || ' ' || replace(format_type(a.atttypid, NULL), 'character varying', 'text'), ', ' ORDER BY a.attname)
        FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS shape, EXISTS (
        SELECT FROM pg_constraint k JOIN pg_attribute a ON a.attrelid = k.conrelid AND ARRAY[a.attnum] = k.conkey
        WHERE k.conrelid = c.oid AND k.contype = 'p' AND a.attname = 'id'
    ) AS keyed
    FROM pg_class c WHERE c.oid = to_regclass(format('%I.queue_message', @schema_literal@::text))
) AS there
