-- Take the gate, without waiting; it is lost with the session. While a relay holds the gate, an INSERT notifies.
SELECT pg_try_advisory_lock(@schema@.queue_message_gate_key()) AS taken
