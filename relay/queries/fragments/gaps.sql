SELECT asked.place, point.xid AS from_xid, point.seq AS from_seq,
        coalesce(lead(point.xid) OVER (PARTITION BY asked.place ORDER BY point.xid, point.seq), asked.to_xid) AS to_xid
    FROM asked CROSS JOIN LATERAL (
        SELECT asked.from_xid AS xid, asked.from_seq AS seq
        UNION ALL
        SELECT running, 9223372036854775807 FROM pg_snapshot_xip(pg_current_snapshot()) AS running
        WHERE running >= asked.from_xid AND running < asked.to_xid
    ) AS point
    ORDER BY asked.place, point.xid, point.seq
