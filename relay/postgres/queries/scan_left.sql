    -- In claim order, from where the last page ended.
    SELECT row_number() OVER () AS place, one.*
    FROM (
        SELECT xid, seq, exchange, ordering_key, lane, attempts, available_at, lock_expires_at, locked_by
        FROM @schema@.queue_message
        WHERE (xid, seq) > (%(from_xid)s::text::xid8, %(from_seq)s)
        ORDER BY xid, seq
        LIMIT %(walk)s
    ) AS one
