-- In how many seconds the next message with a key is due, a day at the most; no row for none. Reads past what is not committed, and past what was folded
-- while a transaction may still see it: that may be long.
SELECT extract(epoch FROM least(greatest(first_at, 'epoch'), now() + interval '1 day') - now())::float8
FROM (SELECT min(due_at) AS first_at FROM @schema@.queue_message_keyed_row) AS due
WHERE first_at IS NOT NULL
