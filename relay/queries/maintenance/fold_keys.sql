-- Send what is due under its keys; returns how many messages it took, how many were replaced, how many were sent within another, and in how
-- many seconds the next is due: null for none.
SELECT f.folded, f.superseded, f.bundled,
    CASE WHEN isfinite(f.next_at) THEN extract(epoch FROM f.next_at - clock_timestamp())::double precision END
FROM @schema@.queue_message_fold() f
