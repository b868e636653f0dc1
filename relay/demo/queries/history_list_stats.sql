-- What each table of statistics counts, by day and exchange.
SELECT grain, day::text AS day, exchange, sum(published)::bigint AS success, sum(discarded)::bigint AS discarded,
    sum(rejected)::bigint AS rejected, sum(failed)::bigint AS failed, sum(lock_expired)::bigint AS lock_expired
FROM (
    SELECT 'window' AS grain, (start AT TIME ZONE 'UTC')::date AS day, * FROM queue_message_stats_window
    UNION ALL SELECT 'hour', (start AT TIME ZONE 'UTC')::date, * FROM queue_message_stats_hour
    UNION ALL SELECT 'day', (start AT TIME ZONE 'UTC')::date, * FROM queue_message_stats_day
) AS counted GROUP BY grain, day, exchange ORDER BY grain, day, exchange
