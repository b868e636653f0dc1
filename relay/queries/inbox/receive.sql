-- Write deliveries in the order of the arrays, except those that their queue has brought before; return how many were written. Marks are
-- made in the order of their keys, so that two receivers that bring the same deliveries never wait for each other. Values that may be long
-- are sent in binary: in an array as text each quote would be escaped, and be an object of its own meanwhile. Deliveries are acknowledged
-- after the COMMIT: it must have reached the disk, whatever the database, the role or a pooler has set. If an open transaction has made the
-- same mark, the wait for it lasts as long as `patience` says, behind a pooler too.
WITH durable AS MATERIALIZED (
    SELECT set_config('synchronous_commit', 'on', true)
), delivery AS MATERIALIZED (
    SELECT DISTINCT ON (queue, message_id) delivery.*
    FROM set_config('lock_timeout', %(patience)s, true),
        unnest(%(queues)s::text[], %(message_ids)s::text[], %(exchanges)s::text[], %(routing_keys)s::text[], %(contents)b::text[],
        %(bodies)b::bytea[], %(options)b::text[]) WITH ORDINALITY
        AS delivery (queue, message_id, exchange, routing_key, content, body, options, place)
    ORDER BY queue, message_id, place
), fresh AS (
    INSERT INTO @schema@.queue_message_received (consumer, message_id)
    SELECT queue, message_id FROM delivery ORDER BY queue, message_id
    ON CONFLICT DO NOTHING
    RETURNING consumer, message_id
), written AS (
    INSERT INTO @schema@.queue_message (exchange, routing_key, content, body, options)
    SELECT exchange, routing_key, coalesce(content, '{}')::jsonb, body, options::jsonb
    FROM delivery JOIN fresh ON (fresh.consumer, fresh.message_id) = (delivery.queue, delivery.message_id)
    ORDER BY place
    RETURNING 1
)
-- A delivery whose row a trigger of the application's skips must not be acknowledged.
SELECT @schema@.queue_message_none_skipped('queue_message', (SELECT count(*) FROM fresh), (SELECT count(*) FROM written)),
    (SELECT count(*) FROM durable)
