-- One message's story: in the queue, and each time that it was archived, oldest first.
SELECT state, exchange, routing_key, ordering_key, attempts, created_at, available_at, expires_at, lock_expires_at, handled_by,
    error_code, error_detail, replay_of, claimed_at, published_at, confirmed_at, archived_at
FROM @schema@.queue_message_state
WHERE id = %(id)s
ORDER BY archived_at NULLS LAST
