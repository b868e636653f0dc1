-- Receipts of a span of time, in microseconds since 1970; read by Spark's tasks.
SELECT message_id::text AS message_id, queue, received_at FROM @schema@.queue_message_receipt
WHERE received_at >= 'epoch'::timestamptz + @low@ * interval '1 microsecond' AND received_at <= 'epoch'::timestamptz + @high@ * interval '1 microsecond'
