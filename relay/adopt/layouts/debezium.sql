-- Debezium's outbox event router, with its default names of columns.
-- columns: id uuid, aggregatetype text, aggregateid text, type text, payload any
-- needs: exchange
-- by: view
-- waits: wal
-- own: id
-- order: given.id
SELECT
    -- The table does not know what has been read from the WAL.
    'logged'::text AS state,
    false AS stays,
    NULL::text AS problem,
    source.id AS id,
    @exchange@ AS exchange,
    coalesce(@routing_key@, 'outbox.event.' || source.aggregatetype) AS routing_key,
    CASE WHEN pg_typeof(source.payload) = 'jsonb'::regtype AND source.payload IS NOT NULL THEN format('%s', source.payload)::jsonb
        ELSE '{}' END AS content,
    -- Any other type goes out as the bytes that it is; what was a tombstone, as an empty body.
    CASE WHEN source.payload IS NULL THEN ''::bytea
        WHEN pg_typeof(source.payload) = 'jsonb'::regtype THEN NULL
        WHEN pg_typeof(source.payload) = 'bytea'::regtype THEN decode(substr(format('%s', source.payload), 3), 'hex')
        ELSE convert_to(format('%s', source.payload), 'UTF8') END AS body,
    jsonb_build_object('messageId', source.id, 'type', source.type, 'headers', jsonb_build_object('id', source.id))
        || CASE WHEN pg_typeof(source.payload) = 'json'::regtype THEN '{"contentType": "application/json"}' ELSE '{}' END::jsonb AS options,
    -- A Kafka key keeps the order within its topic, which is that of the aggregate's type.
    nullif(coalesce(@ordering_key@, source.aggregatetype || ':' || source.aggregateid), '') AS ordering_key,
    NULL::timestamptz AS available_at,
    NULL::timestamptz AS expires_at
FROM (SELECT (given).*) AS source
