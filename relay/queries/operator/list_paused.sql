-- Exchanges that are paused.
SELECT exchange, paused_at, paused_by, reason FROM @schema@.queue_message_pause ORDER BY exchange
