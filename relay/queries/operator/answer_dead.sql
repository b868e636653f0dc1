-- Answer one dead message by its place; whether it was answered now.
SELECT @schema@.queue_message_dead_answer(%(id)s, %(xid)s::text::xid8, %(seq)s, by => %(by)s, note => %(note)s) AS answered
