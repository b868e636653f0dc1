-- Insert messages in the order of the arrays; the columns are those that an application may write. The numbers are taken after the sort.
-- A delay counts from this statement, as a transaction may have begun long before.
INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at)
SELECT id, exchange, routing_key, content::jsonb, body, options::jsonb, ordering_key,
    coalesce(available_at, statement_timestamp() + make_interval(secs => delay)), expires_at
FROM unnest(%(ids)s::uuid[], %(exchanges)s::text[], %(routing_keys)s::text[], %(contents)s::text[], %(bodies)s::bytea[], %(options)s::text[],
    %(ordering_keys)s::text[], %(available_ats)s::timestamptz[], %(delays)s::double precision[], %(expires_ats)s::timestamptz[]) WITH ORDINALITY
    AS message (id, exchange, routing_key, content, body, options, ordering_key, available_at, delay, expires_at, place)
ORDER BY place
