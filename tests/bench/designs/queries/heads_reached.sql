,
    CASE WHEN header.due < %(limit)s THEN (SELECT ARRAY[xid::text::bigint, seq] FROM walked OFFSET %(walk)s - 1 LIMIT 1) END
