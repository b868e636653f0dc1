-- Mark a message as handled by a consumer; returns a row if it was not marked yet. Waits for a transaction that has marked it and is still
-- open.
INSERT INTO @schema@.queue_message_received (consumer, message_id) VALUES (%(consumer)s, %(message_id)s)
ON CONFLICT DO NOTHING RETURNING true
