-- Keys whose messages could not be sent to the queue, and why; by queue_message_keyed_row_failing_idx.
SELECT key, why FROM @schema@.queue_message_keyed_failing ORDER BY next_try_at LIMIT %(most)s
