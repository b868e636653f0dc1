-- The first message of an ordering key in the queue, which is not one that waits under a key of its own; what is archived has a time of it, so
-- the archive is not looked at.
SELECT id, state, attempts, error_detail
FROM @schema@.queue_message_state
WHERE ordering_key = %(key)s AND archived_at IS NULL AND state <> 'keyed'
ORDER BY xid, seq
LIMIT 1
