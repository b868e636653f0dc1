-- Free the messages at these positions whose locks are over; nothing else is touched. The third column lists the messages that a trigger
-- refuses, in the form in which a claim lists them.
SELECT coalesce(released, 0), coalesce(archived, 0), refused::text
FROM @schema@.queue_message_free_locks(%(xids)s::text::xid8[], %(seqs)s::text::bigint[], %(now)s::timestamptz)
