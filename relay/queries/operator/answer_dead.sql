-- Answer one dead message by its place; returns whether it was answered now. Waits for a moment if an open transaction answers it too.
SELECT @schema@.queue_message_dead_answer(%(id)s, %(xid)s::text::xid8, %(seq)s, by => %(by)s, note => %(note)s) AS answered
FROM set_config('lock_timeout', '100ms', true)
