-- Ordering keys of fresh messages, each with its lane and its lowest message here: of late transactions and above the lanes' head, by queue_message_ordered_idx in claim
-- order (the third column of the order lets no other index give it). Goes past transactions that are running, walks a fixed number of messages and
-- says how far it came where that cut it short. Nothing is locked and no key's head is looked for; find_heads does that by key.
WITH asked AS MATERIALIZED (
    SELECT place, from_xid, from_seq,
        CASE WHEN place < cardinality(%(from_xids)s::text::xid8[]) AND from_xid < next AND pg_xact_status(from_xid) = 'aborted' THEN from_xid
            ELSE least(to_xid, next) END AS to_xid
    FROM unnest(%(from_xids)s::text::xid8[], %(from_seqs)s::text::bigint[], %(to_xids)s::text::xid8[])
        WITH ORDINALITY AS range (from_xid, from_seq, to_xid, place)
    CROSS JOIN pg_snapshot_xmax(pg_current_snapshot()) AS next
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
