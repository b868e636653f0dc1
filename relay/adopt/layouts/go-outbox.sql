-- github.com/efureev/go-outbox, outbox.messages with its migrations 0001 to 0004.
-- columns: id uuid, stream text, topic text, payload bytea, headers jsonb, target jsonb, status integer, available_at time, created_at time
-- by: trigger
-- option: prefix = 
-- option: version_separator = _
-- option: stream = 
-- order: given.available_at, given.id
SELECT
    CASE source.status WHEN 0 THEN 'waiting' WHEN 1 THEN 'leased' WHEN 2 THEN 'sent' ELSE 'failed' END AS state,
    -- What another stream of the table is for goes to another broker.
    source.status <> 0 OR @stream@ <> '' AND source.stream <> ALL (string_to_array(@stream@, ',')) AS stays,
    NULL::text AS problem,
    source.id AS id,
    coalesce(@exchange@, source.target ->> 'exchange', '') AS exchange,
    coalesce(@routing_key@, nullif(source.target ->> 'routing_key', ''), @prefix@ || source.topic
        || CASE WHEN (source.target ->> 'version')::int > 0 THEN @version_separator@ || 'v' || (source.target ->> 'version') ELSE '' END)
        AS routing_key,
    '{}'::jsonb AS content,
    source.payload AS body,
    jsonb_build_object('messageId', source.id, 'timestamp', floor(extract(epoch FROM source.created_at))::bigint,
        'contentType', coalesce(nullif(source.headers ->> 'content-type', ''), nullif(source.headers ->> 'Content-Type', ''),
            nullif(source.headers ->> 'content_type', ''), 'application/octet-stream'), 'headers', source.headers) AS options,
    nullif(@ordering_key@, '') AS ordering_key,
    CASE WHEN source.available_at > now() THEN source.available_at END AS available_at,
    NULL::timestamptz AS expires_at
FROM (SELECT (given).*) AS source
