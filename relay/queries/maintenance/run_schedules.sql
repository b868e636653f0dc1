-- Insert the messages of due ticks; returns how many, and in how many seconds the next tick is (null for none).
SELECT r.inserted, CASE WHEN isfinite(r.next_at) THEN extract(epoch FROM r.next_at - clock_timestamp())::double precision END
FROM @schema@.queue_message_run_schedules() r
