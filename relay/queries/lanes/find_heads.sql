-- The head of each of these ordering keys: its lowest message in any state. It is looked for from the key's bound on. Below the bound it is
-- looked for in the transactions that were running when the bound was learned and have ended since. The transactions that ran when heads
-- were last looked for are given once for all keys: a transaction that has run for longer than a bound is known was below that bound from
-- the beginning. Dead index entries below the bound are not walked, and messages with another cluster's higher ids are left until they are
-- renumbered. If there are messages that were renumbered (sql/0024, their transaction is 2), any key may have one of them below its bound;
-- the highest of their numbers is noted each minute (sql/0042). Passes over transactions that are running, and looks for nothing of a
-- transaction that was rolled back. The key is part of the order, and not compared by a plain equality: otherwise the primary key could
-- give that order. If statistics know few keys, PostgreSQL would walk the whole primary key for a key without messages (7,225 pages of
-- 200,000 messages instead of 4). The array of one key ends a walk behind its gap.
WITH asked AS MATERIALIZED (
    SELECT ordering_key, from_xid, from_seq, place
    FROM unnest(%(keys)s::text[], %(from_xids)s::text::xid8[], %(from_seqs)s::text::bigint[]) WITH ORDINALITY
        AS asked (ordering_key, from_xid, from_seq, place)
), gap AS MATERIALIZED (
    SELECT xid AS after_xid, coalesce(lead(xid) OVER (ORDER BY xid), pg_snapshot_xmax(pg_current_snapshot())) AS to_xid
    FROM (SELECT '0'::xid8 AS xid UNION ALL SELECT pg_snapshot_xip(pg_current_snapshot())) AS point
    ORDER BY xid
), ended AS MATERIALIZED (
    SELECT xid FROM unnest(%(running)s::text::xid8[]) AS running (xid)
    WHERE CASE WHEN pg_visible_in_snapshot(xid, pg_current_snapshot()) THEN pg_xact_status(xid) IS DISTINCT FROM 'aborted' END
), late AS MATERIALIZED (
    SELECT asked.ordering_key, asked.place, below.xid
    FROM (
        SELECT place, xid FROM unnest(%(late_places)s::text::int[], %(late_xids)s::text::xid8[]) AS running (place, xid)
        WHERE CASE WHEN pg_visible_in_snapshot(xid, pg_current_snapshot()) THEN pg_xact_status(xid) IS DISTINCT FROM 'aborted' END
        UNION ALL
        SELECT place, xid FROM ended JOIN asked ON ended.xid < asked.from_xid
        UNION ALL
        SELECT place, '2' FROM asked
        WHERE (SELECT true FROM @schema@.queue_message WHERE xid = '2'
               AND seq <= (SELECT coalesce(max(renumbered_to), 9223372036854775807) FROM @schema@.queue_message_cluster)
               ORDER BY xid DESC, seq DESC LIMIT 1)
    ) AS below
    JOIN asked USING (place)
), found AS (
    SELECT asked.place, asked.ordering_key, first.*
    FROM asked CROSS JOIN LATERAL (
        SELECT message.*
        FROM gap CROSS JOIN LATERAL (
            SELECT gap.after_xid AS xid, 9223372036854775807 AS seq WHERE gap.after_xid >= asked.from_xid
            UNION ALL
            SELECT asked.from_xid, asked.from_seq WHERE gap.after_xid < asked.from_xid
        ) AS start
        CROSS JOIN LATERAL (
            SELECT one.xid, one.seq, one.lock_expires_at, one.available_at, one.exchange, one.locked_by, one.lane, one.attempts
            FROM @schema@.queue_message AS one
            WHERE one.ordering_key = ANY(ARRAY[asked.ordering_key]) AND (one.xid, one.seq) >= (start.xid, start.seq) AND one.xid < gap.to_xid
            ORDER BY one.ordering_key, one.xid, one.seq
            LIMIT 1
        ) AS message
        WHERE gap.to_xid > asked.from_xid
        LIMIT 1
    ) AS first
    UNION ALL
    SELECT late.place, late.ordering_key, first.*
    FROM late CROSS JOIN LATERAL (
        SELECT one.xid, one.seq, one.lock_expires_at, one.available_at, one.exchange, one.locked_by, one.lane, one.attempts
        FROM @schema@.queue_message AS one
        WHERE (one.ordering_key, one.xid, one.seq) >= (late.ordering_key, late.xid, 0)
            AND (one.ordering_key, one.xid) <= (late.ordering_key, late.xid) AND one.ordering_key <= late.ordering_key
        ORDER BY one.ordering_key, one.xid, one.seq
        LIMIT 1
    ) AS first
), head AS MATERIALIZED (
    SELECT DISTINCT ON (place) place, ordering_key, xid, seq, exchange, lane, locked_by IS NOT NULL AS suspect, attempts,
        lock_expires_at IS NULL AND (available_at IS NULL OR available_at <= coalesce(%(now)s, now()))
            AND exchange <> ALL(%(except)s::text[]) AS ready
    FROM found
    ORDER BY place, xid, seq
)
SELECT head.place::int, head.xid::text::bigint, head.seq, head.lane,
    head.ready AND NOT EXISTS (SELECT FROM @schema@.queue_message_key_hold AS hold WHERE hold.ordering_key = head.ordering_key OFFSET 0),
    head.exchange, head.suspect, head.attempts,
    CASE WHEN row_number() OVER () = 1 THEN pg_current_snapshot()::text END
FROM (SELECT) AS always LEFT JOIN head ON true
