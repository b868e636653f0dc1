-- The head of each of these ordering keys: its lowest message in any state, looked for from the key's bound on and, below it, in the
-- transactions that were running when the bound was learned and have ended since. Dead index entries below the bound are not walked.
WITH asked AS MATERIALIZED (
    SELECT ordering_key, from_xid, from_seq, place
    FROM unnest(%(keys)s::text[], %(from_xids)s::text::xid8[], %(from_seqs)s::text::bigint[]) WITH ORDINALITY
        AS asked (ordering_key, from_xid, from_seq, place)
), late AS MATERIALIZED (
    SELECT asked.ordering_key, asked.place, ended.xid
    FROM (
        SELECT place, xid FROM unnest(%(late_places)s::text::int[], %(late_xids)s::text::xid8[]) AS running (place, xid)
        WHERE pg_visible_in_snapshot(xid, pg_current_snapshot())
    ) AS ended
    JOIN asked USING (place)
), found AS (
    SELECT asked.place, asked.ordering_key, first.*
    FROM asked CROSS JOIN LATERAL (
        SELECT one.xid, one.seq, one.lock_expires_at, one.available_at, one.exchange, one.locked_by
        FROM @schema@.queue_message AS one
        WHERE one.ordering_key = asked.ordering_key AND (one.xid, one.seq) >= (asked.from_xid, asked.from_seq)
        ORDER BY one.xid, one.seq
        LIMIT 1
    ) AS first
    UNION ALL
    SELECT late.place, late.ordering_key, first.*
    FROM late CROSS JOIN LATERAL (
        SELECT one.xid, one.seq, one.lock_expires_at, one.available_at, one.exchange, one.locked_by
        FROM @schema@.queue_message AS one
        WHERE one.ordering_key = late.ordering_key AND one.xid = late.xid
        ORDER BY one.xid, one.seq
        LIMIT 1
    ) AS first
), head AS MATERIALIZED (
    SELECT DISTINCT ON (place) place, ordering_key, xid, seq, exchange, lock_expires_at IS NOT NULL AS locked,
        lock_expires_at IS NULL AND (available_at IS NULL OR available_at <= coalesce(%(now)s, now()) AND locked_by IS NULL)
            AND exchange <> ALL(%(except)s::text[]) AS ready
    FROM found
    ORDER BY place, xid, seq
)
SELECT head.place::int, head.xid::text::bigint, head.seq, head.locked,
    head.ready AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold AS hold WHERE hold.ordering_key = head.ordering_key OFFSET 0),
    head.exchange,
    CASE WHEN row_number() OVER () = 1 THEN pg_current_snapshot()::text END
FROM (SELECT) AS always LEFT JOIN head ON true
