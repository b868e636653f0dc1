-- Replay a dead message that nobody has answered, at most so many times along its lineage; the new id, or null.
SELECT @schema@.queue_message_dead_replay(%(id)s, %(xid)s::text::xid8, %(seq)s, %(at_most)s, by => %(by)s) AS id
