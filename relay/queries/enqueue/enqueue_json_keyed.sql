-- As enqueue_json, for messages with a key. Returns what enqueue_keyed does.
WITH given AS MATERIALIZED (
    SELECT *
    FROM ROWS FROM (json_to_recordset(CAST(%(messages)s AS json)) AS (id uuid, exchange text, routing_key text, content text, body text,
        options text, ordering_key text, available_at timestamptz, delay double precision, expires_at timestamptz,
        dedup_key text, dedup_seconds integer, coalesce_key text, bundle_key text)) WITH ORDINALITY
        AS message (id, exchange, routing_key, content, body, options, ordering_key, available_at, delay, expires_at,
            dedup_key, dedup_seconds, coalesce_key, bundle_key, place)
), new AS (
    INSERT INTO @schema@.queue_message_keyed (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at,
        dedup_key, dedup_seconds, coalesce_key, bundle_key)
    SELECT id, exchange, routing_key, content::jsonb, decode(body, 'base64'), options::jsonb, ordering_key,
        coalesce(available_at, statement_timestamp() + make_interval(secs => delay)), expires_at,
        dedup_key, dedup_seconds, coalesce_key, bundle_key
    FROM given ORDER BY place
    RETURNING id
)
SELECT coalesce(new.id, @schema@.queue_message_known(given.exchange, given.dedup_key))::text
FROM given LEFT JOIN new USING (id) ORDER BY given.place
