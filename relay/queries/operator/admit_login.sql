-- Make a login a member of this outbox's role of a kind.
SELECT @schema@.queue_message_admit(%(kind)s, %(login)s) AS role
