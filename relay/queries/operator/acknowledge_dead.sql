-- Answer a dead message, the only one with its id or the one at a place; returns how many of its deaths were answered now.
SELECT CASE WHEN %(xid)s::text IS NULL THEN @schema@.queue_message_dead_acknowledge(%(id)s, note => %(note)s)
    ELSE @schema@.queue_message_dead_answer(%(id)s, %(xid)s::text::xid8, %(seq)s, note => %(note)s)::int END AS answered
