-- One message's story: in the queue, and each time that it was archived, oldest first; of all messages with the id the newest, or of the one at a
-- place. A time that no calendar has is left out: it bypassed the triggers, and no client could read it.
WITH found AS MATERIALIZED (
    SELECT state, exchange, routing_key, ordering_key, attempts, CASE WHEN isfinite(created_at) THEN created_at END AS created_at,
        CASE WHEN isfinite(available_at) THEN available_at END AS available_at,
        CASE WHEN isfinite(expires_at) THEN expires_at END AS expires_at,
        CASE WHEN isfinite(lock_expires_at) THEN lock_expires_at END AS lock_expires_at, handled_by,
        xid::text || '/' || seq AS place, error_code, error_detail, replay_of, claimed_at, published_at, confirmed_at, archived_at
    FROM @schema@.queue_message_state
    WHERE id = %(id)s AND (%(xid)s::text IS NULL OR xid = %(xid)s::text::xid8 AND seq = %(seq)s)
)
SELECT * FROM (SELECT * FROM found ORDER BY archived_at DESC NULLS FIRST LIMIT %(most)s) AS newest
ORDER BY archived_at NULLS LAST
