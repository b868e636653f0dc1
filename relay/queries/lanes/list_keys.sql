-- Ordering keys of fresh messages, each with its lane and its lowest message among late transactions and above the lanes' head. They come
-- in claim order by queue_message_ordered_idx; because of the third column of the order, no other index can give it. Passes over
-- transactions that are running, walks a fixed number of messages, and says how far it came if that number cut it short. Nothing is locked
-- and no key's head is looked for; find_heads does that by key.
WITH asked AS MATERIALIZED (
@asked@
), gap AS MATERIALIZED (
    @gaps@
), walked AS MATERIALIZED (
    SELECT row_number() OVER () AS place, one.*
    FROM (
        SELECT message.*
        FROM gap
        CROSS JOIN LATERAL (
            SELECT xid, seq, ordering_key, lane, lock_expires_at IS NULL AND available_at IS NULL AS fresh
            FROM @schema@.queue_message
            WHERE (xid, seq) > (gap.from_xid, gap.from_seq) AND xid < gap.to_xid AND ordering_key IS NOT NULL
            ORDER BY xid, seq, lane
            LIMIT %(walk)s
        ) AS message
        LIMIT %(walk)s
    ) AS one
), key AS (
    SELECT DISTINCT ON (ordering_key) ordering_key, lane, xid, seq, place
    FROM walked
    WHERE fresh AND lane = ANY(%(lanes)s::smallint[])
    ORDER BY ordering_key, place
)
SELECT key.ordering_key, key.lane, key.xid::text::bigint, key.seq, pg_current_snapshot()::text, last.xid::text::bigint, last.seq
FROM (SELECT) AS always
LEFT JOIN walked AS last ON last.place = %(walk)s
LEFT JOIN key ON true
ORDER BY key.place
