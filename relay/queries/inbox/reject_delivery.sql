-- Archive a delivery that can never be a message; false if its queue had brought it before. If an open transaction has made the same mark,
-- the wait for it lasts as long as `patience` says, behind a pooler too.
SELECT @schema@.queue_message_reject_delivery(%(queue)s, %(message_id)s, %(exchange)s, %(routing_key)s, %(payload)s, %(code)s, %(sentence)s, %(handled_by)s)
FROM set_config('lock_timeout', %(patience)s, true)
