-- Relays that run or ran lately, the living ones first.
SELECT id, name, version, host, pid, started_at, extract(epoch FROM silent_for)::float8 AS silent_seconds, alive, lanes, state
FROM @schema@.queue_message_relay_state
ORDER BY alive DESC, name, id
