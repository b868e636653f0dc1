    -- The main stream while exchanges have streams of their own: their messages are looked at and left alone.
    SELECT xid, seq, lock_expires_at IS NULL AND available_at IS NULL AND ordering_key IS NULL AND exchange <> ALL(%(except)s::text[]) AS wanted
    FROM @schema@.queue_message
    WHERE (xid, seq) > (%(head_xid)s::text::xid8, %(head_seq)s)
    ORDER BY xid, seq
    LIMIT %(walk)s
