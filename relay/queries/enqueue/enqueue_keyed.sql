-- As enqueue, for messages with a key. Returns the id of each in order. A message whose dedup_key is known already is not inserted; its id
-- here is that of the first message.
WITH given AS MATERIALIZED (
    SELECT *
    FROM unnest(%(ids)s::uuid[], %(exchanges)s::text[], %(routing_keys)s::text[], %(contents)s::text[], %(bodies)s::bytea[], %(options)s::text[],
        %(ordering_keys)s::text[], %(available_ats)s::timestamptz[], %(delays)s::double precision[], %(expires_ats)s::timestamptz[],
        %(dedup_key)s::text[], %(dedup_seconds)s::integer[], %(coalesce_key)s::text[], %(bundle_key)s::text[]) WITH ORDINALITY
        AS message (id, exchange, routing_key, content, body, options, ordering_key, available_at, delay, expires_at,
            dedup_key, dedup_seconds, coalesce_key, bundle_key, place)
), new AS (
    INSERT INTO @schema@.queue_message_keyed (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at,
        dedup_key, dedup_seconds, coalesce_key, bundle_key)
    SELECT id, exchange, routing_key, content::jsonb, body, options::jsonb, ordering_key,
        coalesce(available_at, statement_timestamp() + make_interval(secs => delay)), expires_at,
        dedup_key, dedup_seconds, coalesce_key, bundle_key
    FROM given ORDER BY place
    RETURNING id
)
SELECT coalesce(new.id, @schema@.queue_message_known(given.exchange, given.dedup_key))::text
FROM given LEFT JOIN new USING (id) ORDER BY given.place
