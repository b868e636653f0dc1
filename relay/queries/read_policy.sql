-- The policy that the database carries out, and the exchanges that an operator holds.
SELECT 'setting' AS kind, name, value FROM @schema@.queue_message_setting
UNION ALL
SELECT 'paused', exchange, '' FROM @schema@.queue_message_pause
