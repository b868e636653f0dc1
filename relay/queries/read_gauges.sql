-- The state of the queue as one object, for metrics.
SELECT to_jsonb(status) FROM @schema@.queue_message_status AS status
