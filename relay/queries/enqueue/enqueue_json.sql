-- As enqueue, with all messages in one text, for drivers that bind no arrays. The numbers are taken after the sort.
INSERT INTO @schema@.queue_message (id, exchange, routing_key, content, body, options, ordering_key, available_at, expires_at)
SELECT id, exchange, routing_key, content::jsonb, decode(body, 'base64'), options::jsonb, ordering_key,
    coalesce(available_at, statement_timestamp() + make_interval(secs => delay)), expires_at
FROM ROWS FROM (json_to_recordset(CAST(%(messages)s AS json)) AS (id uuid, exchange text, routing_key text, content text, body text,
    options text, ordering_key text, available_at timestamptz, delay double precision, expires_at timestamptz)) WITH ORDINALITY
    AS message (id, exchange, routing_key, content, body, options, ordering_key, available_at, delay, expires_at, place)
ORDER BY place
