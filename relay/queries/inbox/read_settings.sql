-- The database's policy as far as somebody has set it.
SELECT name, value FROM @schema@.queue_message_setting
