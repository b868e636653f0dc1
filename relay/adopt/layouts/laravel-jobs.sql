-- Laravel's database queue, the table jobs of `php artisan make:queue-table`.
-- columns: id integer, queue text, payload text, attempts integer, reserved_at integer, available_at integer, created_at integer
-- by: trigger
-- order: given.id
SELECT
    CASE WHEN source.reserved_at IS NOT NULL THEN 'leased' ELSE 'waiting' END AS state,
    -- The worker that failed inserts a retry again, and keeps it.
    source.reserved_at IS NOT NULL OR source.attempts > 0 AS stays,
    NULL::text AS problem,
    NULL::uuid AS id,
    coalesce(@exchange@, '') AS exchange,
    coalesce(@routing_key@, source.queue) AS routing_key,
    '{}'::jsonb AS content,
    convert_to(source.payload, 'UTF8') AS body,
    jsonb_build_object('messageId', source.id::text, 'contentType', 'application/json', 'timestamp', source.created_at) AS options,
    nullif(@ordering_key@, '') AS ordering_key,
    CASE WHEN to_timestamp(source.available_at) > now() THEN to_timestamp(source.available_at) END AS available_at,
    NULL::timestamptz AS expires_at
FROM (SELECT (given).*) AS source
