-- What a replay job has enqueued, and as which messages.
SELECT xid::text::bigint, seq, id::text FROM @schema@.queue_message_replay_ledger WHERE job = %(job)s
