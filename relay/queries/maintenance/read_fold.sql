-- In how many seconds the next message with a key is due, a day at the most, null for none; from which time on the next look may begin, in
-- seconds since 1970; and how many seconds this look took. This look begins at `since`: before that time there are only messages that were
-- folded and that an old snapshot keeps. Messages that are not committed are not seen.
WITH due AS MATERIALIZED (
    SELECT (SELECT due_at FROM @schema@.queue_message_keyed_row WHERE due_at >= to_timestamp(%(since)s::float8) ORDER BY due_at LIMIT 1) AS first_at
)
SELECT CASE WHEN first_at IS NOT NULL THEN extract(epoch FROM least(greatest(first_at, 'epoch'), now() + interval '1 day') - now())::float8 END,
    extract(epoch FROM least(first_at, now()) - interval '2 s')::float8, extract(epoch FROM clock_timestamp() - statement_timestamp())::float8
FROM due
