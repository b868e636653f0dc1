-- Answer one dead message by its place; whether it was answered now. An open transaction that answers it too is waited for a moment.
SELECT @schema@.queue_message_dead_answer(%(id)s, %(xid)s::text::xid8, %(seq)s, by => %(by)s, note => %(note)s) AS answered
FROM set_config('lock_timeout', '100ms', true)
