-- Who crosses the border of this outbox, one sentence each.
SELECT s.text AS sentence FROM @schema@.queue_message_crossings() AS s (text)
