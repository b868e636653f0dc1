-- The first message of an ordering key in the queue, without messages that wait under a key of their own. Archived messages have an
-- archived_at, so the archive is not looked at.
SELECT id, state, attempts, error_detail
FROM @schema@.queue_message_state
WHERE ordering_key = %(key)s AND archived_at IS NULL AND state <> 'keyed'
ORDER BY xid, seq
LIMIT 1
