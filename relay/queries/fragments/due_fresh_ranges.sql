asked AS MATERIALIZED (
@asked@
), gap AS MATERIALIZED (
    -- Passes over transactions that are running: nothing of them is visible, but a walk would look up each of their messages in the table.
    -- No walk ends at (xid, 0) of a transaction that is passed over: PostgreSQL 15 would read all index entries with that xid before it
    -- stops.
    @gaps@
), bounded AS MATERIALIZED (
    -- Each range ends after a fixed number of messages, at its bound.
    SELECT asked.place, bound.xid, bound.seq
    FROM asked
    LEFT JOIN LATERAL (
        SELECT message.xid, message.seq
        FROM gap CROSS JOIN LATERAL (
            SELECT one.xid, one.seq
            FROM @schema@.queue_message AS one
            WHERE (one.xid, one.seq) > (gap.from_xid, gap.from_seq) AND one.xid < gap.to_xid
            ORDER BY one.xid, one.seq
            LIMIT %(walk)s + 1
        ) AS message
        WHERE gap.place = asked.place
        OFFSET %(walk)s
        LIMIT 1
    ) AS bound ON true
), range AS MATERIALIZED (
    SELECT gap.from_xid, gap.from_seq, CASE WHEN cut THEN bounded.xid ELSE (gap.to_xid::text::bigint - 1)::text::xid8 END AS to_xid,
        CASE WHEN cut THEN bounded.seq ELSE 9223372036854775807 END AS to_seq
    FROM gap JOIN bounded USING (place) CROSS JOIN LATERAL (SELECT (bounded.xid, bounded.seq) < (gap.to_xid, 0) AS cut) AS bound
    ORDER BY gap.place, gap.from_xid, gap.from_seq
), 