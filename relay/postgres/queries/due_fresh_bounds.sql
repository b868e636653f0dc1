,
    CASE WHEN row_number() OVER in_order = 1 THEN
        (SELECT array_agg(ARRAY[bound_xid::text::bigint, bound_seq] ORDER BY place) FROM range) END
