-- Send the messages that are due under their keys, except those that were due before `since`. Returns how many messages it took, how many
-- were replaced, and how many were sent within another. Then in how many seconds the next is due, null for none, and from which time on the
-- next look may begin (seconds since 1970).
SELECT f.folded, f.superseded, f.bundled,
    CASE WHEN isfinite(f.next_at) THEN extract(epoch FROM f.next_at - clock_timestamp())::float8 END,
    extract(epoch FROM least(f.next_at, now()) - interval '2 s')::float8
FROM @schema@.queue_message_fold(since => to_timestamp(%(since)s::float8)) f
