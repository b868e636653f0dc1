-- faststream-outbox (modern-python/faststream-outbox 0.9), the table that make_outbox_table() makes.
-- columns: id integer, queue text, payload bytea, headers jsonb, next_attempt_at time, acquired_token uuid, timer_id text
-- by: trigger
-- order: given.next_attempt_at, given.id
SELECT
    CASE WHEN source.acquired_token IS NOT NULL THEN 'leased' ELSE 'waiting' END AS state,
    -- A timer can be cancelled, and set once, as long as its row is there.
    source.timer_id IS NOT NULL OR source.acquired_token IS NOT NULL AS stays,
    NULL::text AS problem,
    NULL::uuid AS id,
    coalesce(@exchange@, '') AS exchange,
    coalesce(@routing_key@, source.queue) AS routing_key,
    '{}'::jsonb AS content,
    source.payload AS body,
    jsonb_build_object('messageId', source.id::text, 'contentType', source.headers -> 'content-type',
        'correlationId', source.headers -> 'correlation_id', 'headers', coalesce(nullif(source.headers, 'null'), '{}')) AS options,
    nullif(@ordering_key@, '') AS ordering_key,
    CASE WHEN source.next_attempt_at > now() THEN source.next_attempt_at END AS available_at,
    NULL::timestamptz AS expires_at
FROM (SELECT (given).*) AS source
