-- How many receipts there are from a time on, and their first and last time in microseconds since 1970.
SELECT count(*), (extract(epoch FROM min(received_at)) * 1000000)::bigint, (extract(epoch FROM max(received_at)) * 1000000)::bigint
FROM @schema@.queue_message_receipt WHERE received_at >= %(since)s AND isfinite(received_at)
