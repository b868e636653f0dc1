-- A relay that is busy looks by itself: an INSERT need not notify.
SELECT pg_advisory_unlock(@schema@.queue_message_gate_key()) AS released
