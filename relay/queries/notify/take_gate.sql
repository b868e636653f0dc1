-- While a relay holds the gate, an INSERT notifies. Does not wait; lost with the session.
SELECT pg_try_advisory_lock(@schema@.queue_message_gate_key()) AS taken
