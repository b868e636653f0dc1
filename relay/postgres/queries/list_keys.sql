-- Ordering keys with ready messages in these lanes: in transactions that were still running when the lanes' head passed them, and above the
-- head, by queue_message_ordered_idx in claim order: the third column of the order lets no other index give it, and lane + 0 lets that
-- index be walked in order only; OFFSET keeps the look for late ones one for each transaction, as in claim.sql. Nothing is locked and no
-- key's head is looked for; find_heads does that by key.
WITH late AS MATERIALIZED (
    SELECT DISTINCT one.ordering_key
    FROM unnest(%(pending)s::text::xid8[]) AS running (xid)
    CROSS JOIN LATERAL (
        SELECT message.ordering_key
        FROM @schema@.queue_message AS message
        WHERE message.xid = running.xid AND ordering_key IS NOT NULL AND lane + 0 = ANY(%(lanes)s::smallint[])
            AND lock_expires_at IS NULL AND available_at IS NULL
        ORDER BY message.xid, seq, lane
        OFFSET 0
    ) AS one
    LIMIT %(most)s
), ahead AS MATERIALIZED (
    SELECT xid, seq, ordering_key, row_number() OVER () AS place
    FROM (
        SELECT xid, seq, ordering_key
        FROM @schema@.queue_message
        WHERE (xid, seq) > (%(head_xid)s::text::xid8, %(head_seq)s)
            AND ordering_key IS NOT NULL AND lane + 0 = ANY(%(lanes)s::smallint[])
            AND lock_expires_at IS NULL AND available_at IS NULL
        ORDER BY xid, seq, lane
        LIMIT %(most)s
    ) AS in_order
), key AS (
    SELECT ordering_key, min(place) AS place
    FROM (SELECT ordering_key, 0 AS place FROM late UNION ALL SELECT ordering_key, place FROM ahead) AS seen
    GROUP BY ordering_key
)
SELECT pg_current_snapshot()::text, (SELECT array_agg(ordering_key ORDER BY place) FROM key),
    (SELECT count(*) FROM late) = %(most)s, (SELECT count(*) FROM ahead) = %(most)s, last.xid::text::bigint, last.seq
FROM (SELECT) AS always LEFT JOIN (SELECT xid, seq FROM ahead ORDER BY place DESC LIMIT 1) AS last ON true
