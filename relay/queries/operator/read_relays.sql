-- Relays that run or ran lately, the living ones first. A relay that was silent for the lock time holds no living lock. `gone` means silent
-- for five minutes more, in which the others have long freed what it held. A relay that left in order is listed while messages carry its
-- locks.
SELECT id, name, version, host, pid, started_at, extract(epoch FROM silent_for)::float8 AS silent_seconds, alive, lanes, state, kept,
    NOT alive AND kept IS NULL AS gone
FROM @schema@.queue_message_relay_state
WHERE NOT (state ? 'left' AND kept = 0)
ORDER BY alive DESC, name, id
