-- Which archived messages a replay job has enqueued again, and the ids of the new messages.
SELECT xid::text::bigint, seq, id::text FROM @schema@.queue_message_replay_ledger WHERE job = %(job)s
