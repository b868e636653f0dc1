-- Those of these messages that a relay claimed before they left the queue; cancelled messages are not among them.
SELECT id::text AS id FROM @schema@.queue_message_state
WHERE id = ANY(%(ids)s::text[]::uuid[]) AND archived_xid IS NOT NULL AND claimed_at IS NOT NULL
