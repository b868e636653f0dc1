-- Take back a login's membership in this outbox's role of a kind; null if it had none.
SELECT @schema@.queue_message_dismiss(%(kind)s, %(login)s) AS role
