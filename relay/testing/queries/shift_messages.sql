-- Advance the time: what messages wait for comes nearer. Relays in spared renew their locks as time passes, so these locks stay.
UPDATE @schema@.queue_message
SET available_at = available_at - %(by)s, expires_at = expires_at - %(by)s,
    lock_expires_at = CASE WHEN locked_by = ANY(%(spared)s) THEN lock_expires_at ELSE lock_expires_at - %(by)s END
WHERE num_nonnulls(available_at, expires_at, lock_expires_at) > 0
