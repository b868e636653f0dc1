-- Messages that each relay holds now.
SELECT r.id, r.name, r.pid, count(*) FROM queue_message m JOIN queue_message_relay r ON r.id = m.locked_by
WHERE m.lock_expires_at > now() GROUP BY r.id ORDER BY count(*) DESC
