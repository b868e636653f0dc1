-- Unacknowledged dead messages by exchange, routing key, result and code, the most first, with the newest of each. It reads the 20,000 newest dead
-- messages. Names are cut as in list_dead.
SELECT exchange, routing_key, result, error_code, count(*) AS messages, max(archived_at) AS newest_at,
    (array_agg(error_detail ORDER BY archived_at DESC))[1] AS newest_detail, count(*) OVER () AS all_groups, sum(count(*)) OVER ()::bigint AS all_messages
FROM (
    SELECT left(exchange, 256) AS exchange, left(routing_key, 256) AS routing_key, result, error_code, left(error_detail, 500) AS error_detail,
        archived_at, acknowledged_at
    FROM @schema@.queue_message_dead_list ORDER BY archived_xid DESC, xid DESC, seq DESC LIMIT 20000
) AS newest
WHERE acknowledged_at IS NULL
GROUP BY exchange, routing_key, result, error_code ORDER BY messages DESC, newest_at DESC LIMIT %(most)s
