-- Ordering keys that wait, those that have waited longest for their next attempt first; with paused also those of paused exchanges.
SELECT ordering_key, why, behind, head_id, exchange, routing_key, attempts,
    CASE WHEN isfinite(available_at) THEN available_at END AS available_at, last_error, held_at, held_by, reason
FROM @schema@.queue_message_blocked_key AS k
WHERE %(paused)s OR why <> 'exchange paused'
ORDER BY k.available_at NULLS FIRST, ordering_key
LIMIT %(most)s
