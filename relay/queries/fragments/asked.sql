    -- Where to look: late transactions, then everything above the head and below this snapshot's next transaction. Messages that stand
    -- higher have another cluster's ids. A late transaction that was rolled back has left nothing to find.
    SELECT place, from_xid, from_seq,
        CASE WHEN place < cardinality(%(from_xids)s::text::xid8[]) AND from_xid < next AND pg_xact_status(from_xid) = 'aborted' THEN from_xid
            ELSE least(to_xid, next) END AS to_xid
    FROM unnest(%(from_xids)s::text::xid8[], %(from_seqs)s::text::bigint[], %(to_xids)s::text::xid8[])
        WITH ORDINALITY AS range (from_xid, from_seq, to_xid, place)
    CROSS JOIN pg_snapshot_xmax(pg_current_snapshot()) AS next
