-- What somebody with CREATEROLE has to run before this outbox's roles are all there, in order.
SELECT s.text FROM @schema@.queue_message_role_statements() AS s (text)
