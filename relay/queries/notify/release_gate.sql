-- Release the gate: a relay that is busy looks by itself, so an INSERT need not notify.
SELECT pg_advisory_unlock(@schema@.queue_message_gate_key()) AS released
