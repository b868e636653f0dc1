-- Advance the time of messages with a key.
UPDATE @schema@.queue_message_keyed_row
SET due_at = due_at - %(by)s, available_at = available_at - %(by)s, expires_at = expires_at - %(by)s
