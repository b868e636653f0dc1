-- Archive a delivery that can never be a message; false where its queue had brought it before.
SELECT @schema@.queue_message_reject_delivery(%(queue)s, %(message_id)s, %(exchange)s, %(routing_key)s, %(payload)s, %(code)s, %(sentence)s, %(handled_by)s)
