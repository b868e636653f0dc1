-- While a relay holds the gate, whoever inserts notifies. Waits for nobody; lost with the session.
SELECT pg_try_advisory_lock(@schema@.queue_message_gate_key()) AS taken
