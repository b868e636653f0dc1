-- Ordering keys that wait, those that have waited longest for their next attempt first; with paused also those of paused exchanges. Of parked keys
-- it looks at 10,000, or as many as shall be shown, and counts what waits behind those that are shown.
SELECT ordering_key, why, @schema@.queue_message_behind(ordering_key) AS behind, head_id, exchange, routing_key, attempts,
    CASE WHEN isfinite(available_at) THEN available_at END AS available_at, last_error, held_at, held_by, reason
FROM (
    SELECT k.* FROM @schema@.queue_message_blocked(greatest(10000, %(most)s::int), %(paused)s) AS k
    ORDER BY k.available_at NULLS FIRST, k.ordering_key
    LIMIT %(most)s
) AS shown
ORDER BY shown.available_at NULLS FIRST, ordering_key
