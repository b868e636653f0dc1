-- Free the messages at these positions whose locks are over; nothing else is touched.
SELECT coalesce(released, 0), coalesce(archived, 0)
FROM @schema@.queue_message_free_expired(%(xids)s::text::xid8[], %(seqs)s::text::bigint[], %(now)s::timestamptz)
