-- Enqueue messages of the lake again, in the order of the arrays, and record them in the job's ledger; messages in the ledger are left out.
SELECT xid::text::bigint, seq, replayed_as::text
FROM @schema@.queue_message_replay_rows(
    %(job)s, %(xids)s::text[]::xid8[], %(seqs)s::bigint[], %(ids)s::uuid[], %(exchanges)s::text[], %(routing_keys)s::text[], %(contents)s::text[],
    %(bodies)s::bytea[], %(options)s::text[], %(ordering_keys)s::text[], %(expires_ats)s::timestamptz[], %(same_id)s)
