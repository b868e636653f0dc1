-- Replay a dead message that is not answered, at most so many times along its lineage; returns the new id, or null. Waits for a moment if
-- an open transaction answers the message too.
SELECT @schema@.queue_message_dead_replay(%(id)s, %(xid)s::text::xid8, %(seq)s, %(at_most)s, by => %(by)s) AS id
FROM set_config('lock_timeout', '100ms', true)
