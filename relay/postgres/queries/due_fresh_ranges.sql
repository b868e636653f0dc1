range AS MATERIALIZED (
    -- Where to look: late transactions, then everything above the head. Each range ends after a fixed number of messages, at its bound, and
    -- below this snapshot's next transaction: whatever claims to stand higher has another cluster's ids.
    SELECT place, from_xid, from_seq, coalesce(bound.xid, asked.to_xid) AS to_xid, coalesce(bound.seq, 0) AS to_seq,
        bound.xid AS bound_xid, bound.seq AS bound_seq
    FROM (
        SELECT place, from_xid, from_seq, least(to_xid, pg_snapshot_xmax(pg_current_snapshot())) AS to_xid
        FROM unnest(%(from_xids)s::text::xid8[], %(from_seqs)s::text::bigint[], %(to_xids)s::text::xid8[])
            WITH ORDINALITY AS range (from_xid, from_seq, to_xid, place)
    ) AS asked
    LEFT JOIN LATERAL (
        SELECT message.xid, message.seq
        FROM @schema@.queue_message AS message
        WHERE (message.xid, message.seq) > (asked.from_xid, asked.from_seq) AND (message.xid, message.seq) < (asked.to_xid, 0)
        ORDER BY message.xid, message.seq
        OFFSET %(walk)s
        LIMIT 1
    ) AS bound ON true
), 
