    -- Messages in claim order, from where the last page ended; passes over transactions that are running.
    SELECT row_number() OVER () AS place, one.*
    FROM (
        SELECT message.*
        FROM (
            WITH asked AS (
                SELECT 1 AS place, %(from_xid)s::text::xid8 AS from_xid, %(from_seq)s::bigint AS from_seq, '9223372036854775807'::xid8 AS to_xid
            )
            @gaps@
        ) AS gap
        CROSS JOIN LATERAL (
            SELECT xid, seq, exchange, ordering_key, lane, attempts, available_at, lock_expires_at, locked_by
            FROM @schema@.queue_message
            WHERE (xid, seq) > (gap.from_xid, gap.from_seq) AND xid < gap.to_xid
            ORDER BY xid, seq
            LIMIT %(walk)s
        ) AS message
        LIMIT %(walk)s
    ) AS one
