-- How many messages the numbers of each day count.
SELECT (start AT TIME ZONE 'UTC')::date AS day, sum(published + discarded + rejected + failed + lock_expired)::bigint AS messages
FROM @schema@.queue_message_stats_day GROUP BY 1
