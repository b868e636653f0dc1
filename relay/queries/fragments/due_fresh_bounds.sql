,
    CASE WHEN row_number() OVER in_order = 1 THEN
        (SELECT array_agg(ARRAY[bounded.xid::text::bigint, bounded.seq] ORDER BY place) FROM bounded) END
